/* The loops over every weight of a checkpoint: the sum that gives a matrix its scale, rounding with packing, and the
 * embedding as float16.
 *
 * They do what pipelines/golden/ternary.py and numpy define, operation by operation, so the bytes are the same with and without
 * this file. Compiled by kernel.py with -ffp-contract=off.
 */
#include <math.h>
#include <stddef.h>
#include <stdint.h>

enum { LANES = 16, TRITS_PER_BYTE = 5, MAX_ROW_TRITS = 4120 /* 4096 rounded up to whole words of 40 */ };

/* Adds |w| of flat entries j, j+16, ... to lane j, in order. All sixteen lanes advance together, so the compiler may
 * use vectors without changing the order within a lane. A NaN or infinity makes a lane not finite. */
void tf_abs_sum(const float *w, size_t count, double lanes[LANES]) {
  double sum[LANES];
  for (int j = 0; j < LANES; j++) sum[j] = lanes[j];
  size_t full = count / LANES * LANES;
  for (size_t i = 0; i < full; i += LANES)
    for (int j = 0; j < LANES; j++) sum[j] += (double)fabsf(w[i + j]);
  for (size_t i = full; i < count; i++) sum[i - full] += (double)fabsf(w[i]);
  for (int j = 0; j < LANES; j++) lanes[j] = sum[j];
}

/* Packs rows of float32: trit = round-half-even(clamp(w * inverse, -1, 1)), which is 0 up to and including a magnitude
 * of one half. Trits behind a row's end are zero. columns <= 4096, row_bytes = 8 * ceil(columns / 40). */
void tf_pack_rows(const float *w, size_t rows, size_t columns, float inverse, uint8_t *out, size_t row_bytes) {
  static const uint8_t zero_trit = 1;
  uint8_t digits[MAX_ROW_TRITS];
  for (size_t i = columns; i < row_bytes * TRITS_PER_BYTE; i++) digits[i] = zero_trit;
  for (size_t r = 0; r < rows; r++, w += columns, out += row_bytes) {
    for (size_t i = 0; i < columns; i++) {
      float scaled = w[i] * inverse;
      digits[i] = (uint8_t)(zero_trit + (scaled > 0.5f) - (scaled < -0.5f));
    }
    for (size_t b = 0; b < row_bytes; b++) {
      const uint8_t *d = digits + b * TRITS_PER_BYTE;
      out[b] = (uint8_t)(d[0] + 3 * d[1] + 9 * d[2] + 27 * d[3] + 81 * d[4]);
    }
  }
}

/* float32 to float16, to nearest even. Returns the number of values that are not finite in float16. */
size_t tf_to_half(const float *w, size_t count, _Float16 *out) {
  size_t lost = 0;
  for (size_t i = 0; i < count; i++) {
    out[i] = (_Float16)w[i];
    lost += !(fabsf(w[i]) < 65520.0f); /* what rounds to infinity; true for a NaN as well */
  }
  return lost;
}
