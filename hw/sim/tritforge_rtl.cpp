// The C interface: arguments checked, no exception let out.
#include "tritforge_rtl.h"

#include <cstdio>
#include <cstdlib>
#include <exception>

#include "board.h"
#include "tf_formats.h"

struct tritforge_rtl {
  tritforge::Board board;
};

namespace {

void tell(char *error, size_t error_bytes, const char *what) {
  if (error != nullptr && error_bytes != 0) std::snprintf(error, error_bytes, "%s", what);
}

}  // namespace

extern "C" {

const char *tritforge_rtl_kind(void) { return tritforge::Fabric::kind(); }

void tritforge_rtl_default_options(tritforge_rtl_options *options) {
  *options = tritforge_rtl_options{};
  options->interface = TRITFORGE_RTL_INTERFACE;
  options->physical_base = 0x10000000u;
  options->memory_bytes = 16u << 20;
  options->length_width = 23;
  options->clock_khz = 125000;
  options->access_cycles = 16;
  options->poll_cycles = 20000;
  options->shadow = 1;
  options->attention_positions = TF_MAX_CONTEXT_BOARD;
  options->attention_head_dim = TF_HEAD_DIM;
  options->ddr_bytes_per_kilocycle = 16072;
  options->ddr_burst_beats = 16;
  options->ddr_burst_gap_cycles = 0;
  options->ddr_latency_cycles = 40;
  for (uint32_t engine = 0; engine < 4; engine++) options->ddr_port_of_engine[engine] = engine % 2 * 2;
}

tritforge_rtl *tritforge_rtl_create(const tritforge_rtl_options *options, char *error, size_t error_bytes) {
  try {
    auto *pl = new tritforge_rtl{tritforge::Board(*options)};
    const char *faults = std::getenv("TRITFORGE_FAULT");
    if (faults != nullptr && tritforge_rtl_fault(pl, faults, error, error_bytes) != 0) {
      delete pl;
      return nullptr;
    }
    return pl;
  } catch (const std::exception &exception) {
    tell(error, error_bytes, exception.what());
    return nullptr;
  }
}

void tritforge_rtl_destroy(tritforge_rtl *pl) { delete pl; }

uint32_t tritforge_rtl_read32(tritforge_rtl *pl, uint32_t address) { return pl->board.read32(address); }
void tritforge_rtl_write32(tritforge_rtl *pl, uint32_t address, uint32_t value) { pl->board.write32(address, value); }
void *tritforge_rtl_memory(tritforge_rtl *pl) { return pl->board.memory(); }
void tritforge_rtl_clean(tritforge_rtl *pl, uint64_t offset, uint64_t bytes) { pl->board.clean(offset, bytes); }
void tritforge_rtl_invalidate(tritforge_rtl *pl, uint64_t offset, uint64_t bytes) {
  pl->board.invalidate(offset, bytes);
}
void tritforge_rtl_barrier(tritforge_rtl *pl) { pl->board.barrier(); }
void tritforge_rtl_advance(tritforge_rtl *pl, uint64_t cycles) { pl->board.advance(cycles); }
uint64_t tritforge_rtl_wait(tritforge_rtl *pl, uint64_t max_cycles) { return pl->board.wait(max_cycles); }
uint64_t tritforge_rtl_time_ns(const tritforge_rtl *pl) { return pl->board.time_ns(); }
void tritforge_rtl_read_statistics(const tritforge_rtl *pl, tritforge_rtl_statistics *out) {
  *out = pl->board.statistics();
}
void tritforge_rtl_clear_statistics(tritforge_rtl *pl) { pl->board.clear_statistics(); }
const char *tritforge_rtl_complaint(tritforge_rtl *pl) { return pl->board.complaint(); }

int tritforge_rtl_fault(tritforge_rtl *pl, const char *list, char *error, size_t error_bytes) {
  try {
    pl->board.fault(list);
    return 0;
  } catch (const std::exception &exception) {
    tell(error, error_bytes, exception.what());
    return -1;
  }
}

int tritforge_rtl_waves(tritforge_rtl *pl, const char *path) { return pl->board.waves(path) ? 0 : -1; }

}  // extern "C"
