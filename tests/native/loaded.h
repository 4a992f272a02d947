/* A libtritforge that is loaded as the product loads it; a program ends with status 2 where that fails. */
#pragma once

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void *library;

static void load(const char *path) {
    library = dlopen(path, RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
}

static void *find(const char *name) {
    void *function = dlsym(library, name);
    if (!function) {
        fprintf(stderr, "no %s: %s\n", name, dlerror());
        exit(2);
    }
    return function;
}
