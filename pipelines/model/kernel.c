/* The loops over every weight of a checkpoint: the sum that gives a matrix its scale, rounding with packing, and the
 * embedding as float16.
 *
 * They do what pipelines/golden/ternary.py and numpy define, operation by operation, so the bytes are the same with and without
 * this file. Compiled by kernel.py with -ffp-contract=off.
 */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 16, TRITS_PER_BYTE = 5, MAX_ROW_TRITS = 4120 /* 4096 rounded up to whole words of 40 */ };

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "five digits are read as one little-endian number"
#endif

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
 * of one half. Trits behind a row's end are zero. columns <= 4096, row_bytes = 8 * ceil(columns / 40).
 *
 * Byte 4 of the product of a number with bytes d0 d1 d2 d3 d4 ... and one with bytes 81 27 9 3 1 is
 * d0 + 3 d1 + 9 d2 + 27 d3 + 81 d4: digits are at most 2, so no byte below it carries (at most 2 (81 + 27 + 9 + 3)). */
void tf_pack_rows(const float *w, size_t rows, size_t columns, float inverse, uint8_t *out, size_t row_bytes) {
  static const uint8_t zero_trit = 1;
  static const uint64_t powers = 81u | 27u << 8 | 9u << 16 | 3u << 24 | (uint64_t)1 << 32;
  uint8_t digits[MAX_ROW_TRITS + sizeof(uint64_t)]; /* the last five are read as eight */
  for (size_t i = columns; i < row_bytes * TRITS_PER_BYTE + sizeof(uint64_t); i++) digits[i] = zero_trit;
  for (size_t r = 0; r < rows; r++, w += columns, out += row_bytes) {
    for (size_t i = 0; i < columns; i++) {
      float scaled = w[i] * inverse;
      digits[i] = (uint8_t)(zero_trit + (scaled > 0.5f) - (scaled < -0.5f));
    }
    for (size_t b = 0; b < row_bytes; b++) {
      uint64_t five;
      memcpy(&five, digits + b * TRITS_PER_BYTE, sizeof five);
      out[b] = (uint8_t)(five * powers >> 32);
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
