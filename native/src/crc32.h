/* The CRC-32 of zlib and PNG (polynomial 0xEDB88320, reflected). */
#ifndef TF_CRC32_H
#define TF_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Continues `crc` (0 at the start) over `bytes` bytes. */
uint32_t tf_crc32(uint32_t crc, const void *data, size_t bytes);

/* Continues over `bytes` zero bytes that are not there. */
uint32_t tf_crc32_zeros(uint32_t crc, size_t bytes);

#endif
