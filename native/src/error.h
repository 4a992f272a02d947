/* The last failure of a thread: a class and a sentence. */
#ifndef TF_ERROR_H
#define TF_ERROR_H

#include "tritforge.h"

/* Notes the failure and returns `status`, so that `return tf_fail(...)` reads well. */
tf_status tf_fail(tf_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
