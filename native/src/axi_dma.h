/* Registers and descriptors of Xilinx' AXI DMA 7.1 (PG021), as far as this driver uses them. */
#ifndef TF_AXI_DMA_H
#define TF_AXI_DMA_H

#include <stdint.h>

/* A channel's registers: MM2S (memory to stream) at 0x00, S2MM (stream to memory) at 0x30. */
#define DMA_MM2S 0x00u
#define DMA_S2MM 0x30u
#define DMA_CONTROL 0x00u
#define DMA_STATUS 0x04u
#define DMA_CURRENT 0x08u /* first descriptor; may be written only while halted */
#define DMA_TAIL 0x10u    /* last descriptor; writing it starts the engine */
#define DMA_ADDRESS 0x18u /* simple mode */
#define DMA_LENGTH 0x28u  /* simple mode; writing it starts the transfer */

#define DMA_CONTROL_RUN (1u << 0)
#define DMA_CONTROL_RESET (1u << 2) /* of both channels; reads 1 until done */

#define DMA_STATUS_HALTED (1u << 0)
#define DMA_STATUS_IDLE (1u << 1)
#define DMA_STATUS_SG (1u << 3) /* built with scatter-gather */
#define DMA_STATUS_ERRORS 0x770u

/* A descriptor: 16 words of 32 bits. */
#define DESCRIPTOR_NEXT 0
#define DESCRIPTOR_BUFFER 2
#define DESCRIPTOR_CONTROL 6
#define DESCRIPTOR_STATUS 7

#define DESCRIPTOR_SOF (1u << 27)
#define DESCRIPTOR_EOF (1u << 26)
#define DESCRIPTOR_LENGTH 0x03FFFFFFu
#define DESCRIPTOR_COMPLETE (1u << 31)
#define DESCRIPTOR_ERRORS 0x70000000u

#endif
