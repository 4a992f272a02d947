/* Packed rows times x on this machine (pipelines/golden/ternary.py: product), for backend `host`. */
#ifndef TF_TERNARY_H
#define TF_TERNARY_H

#include <stddef.h>
#include <stdint.h>

#include "pool.h"

typedef struct tf_ternary tf_ternary;

/* Room for row lengths up to `largest_row_length`; NULL without memory. `plain` keeps to plain C on every machine. */
tf_ternary *tf_ternary_open(uint32_t largest_row_length, int plain);
void tf_ternary_close(tf_ternary *ternary);

/* Prepares x (row_length entries, which must stay) for tf_ternary_rows; by one thread without a pool. */
void tf_ternary_set_x(tf_ternary *ternary, const int8_t *x, uint32_t row_length, tf_pool *pool);

/* acc[r] = row r times x. Rows lie one after the other; `readable` is how many bytes may be read from `rows` on. */
void tf_ternary_rows(const tf_ternary *ternary, const uint8_t *rows, uint32_t count, size_t readable, int32_t *acc);

#endif
