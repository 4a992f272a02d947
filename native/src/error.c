#include "error.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char last_text[4096];
static _Thread_local tf_status last_status;

tf_status tf_fail(tf_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_text, sizeof last_text, format, arguments);
    va_end(arguments);
    last_status = status;
    return status;
}

const char *tf_last_error(void) { return last_text; }

tf_status tf_last_status(void) { return last_status; }
