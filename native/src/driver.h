/* The circuits behind four AXI DMAs, and the backends that give access to them. */
#ifndef TF_DRIVER_H
#define TF_DRIVER_H

#include "circuits.h"
#include "plan.h"
#include "tf_pl.h"

/* Checks the programmable logic, reads weights.tfs into `pl->streams`, prepares the descriptors. `pl` stays the
 * caller's. */
tf_status tf_driver_open(tf_circuits *circuits, const tf_image *image, const tf_layout *layout, tf_pl *pl,
                         tf_profiler *profiler, const tf_options *options);

/* Registers and buffers of a board, as `mmio` says. */
tf_status tf_pl_open_mmio(tf_pl *pl, const tf_mmio_options *mmio, const tf_memory_plan *plan);

/* A library with the interface native/include/tritforge_rtl.h; `kind` is "rtl" or "model". */
tf_status tf_pl_open_library(tf_pl *pl, const char *kind, const char *path, const tf_memory_plan *plan,
                             const tf_params_header *shape, bool simple_dma);

#endif
