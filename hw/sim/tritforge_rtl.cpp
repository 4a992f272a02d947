// The C interface: arguments checked, no exception let out.
#include "tritforge_rtl.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>

#include "board.h"
#include "tf_formats.h"

struct tritforge_rtl {
  explicit tritforge_rtl(const tritforge_rtl_options &options) : board(options) {}
  tritforge::Board board;
};

namespace {

struct OptionName {
  const char *name;
  uint32_t tritforge_rtl_options::*field;
};
constexpr OptionName kOptionNames[] = {
    {"clock_khz", &tritforge_rtl_options::clock_khz},
    {"access_cycles", &tritforge_rtl_options::access_cycles},
    {"poll_cycles", &tritforge_rtl_options::poll_cycles},
    {"length_width", &tritforge_rtl_options::length_width},
    {"ddr", &tritforge_rtl_options::ddr},
    {"ddr_bytes_per_kilocycle", &tritforge_rtl_options::ddr_bytes_per_kilocycle},
    {"ddr_burst_beats", &tritforge_rtl_options::ddr_burst_beats},
    {"ddr_burst_gap_cycles", &tritforge_rtl_options::ddr_burst_gap_cycles},
    {"ddr_latency_cycles", &tritforge_rtl_options::ddr_latency_cycles},
    {"ddr_pair_bytes_per_kilocycle", &tritforge_rtl_options::ddr_pair_bytes_per_kilocycle},
    {"single_steps", &tritforge_rtl_options::single_steps},
};

// TRITFORGE_RTL_OPTIONS: "name=value;name=value" over what the caller chose.
void apply_environment(tritforge_rtl_options &options) {
  const char *text = std::getenv("TRITFORGE_RTL_OPTIONS");
  std::istringstream list(text != nullptr ? text : "");
  for (std::string item; std::getline(list, item, ';');) {
    if (item.empty()) continue;
    const size_t equals = item.find('=');
    const std::string name = item.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : item.substr(equals + 1);
    if (value.empty() || value.size() > 9 || value.find_first_not_of("0123456789") != std::string::npos) {
      throw std::invalid_argument("TRITFORGE_RTL_OPTIONS: '" + item + "' is not NAME=NUMBER");
    }
    bool known = false;
    for (const OptionName &option : kOptionNames) {
      if (name != option.name) continue;
      options.*option.field = static_cast<uint32_t>(std::stoul(value));
      known = true;
    }
    if (!known) throw std::invalid_argument("TRITFORGE_RTL_OPTIONS: there is no option '" + name + "'");
  }
}

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
    tritforge_rtl_options chosen = *options;
    apply_environment(chosen);
    auto pl = std::make_unique<tritforge_rtl>(chosen);
    const char *faults = std::getenv("TRITFORGE_FAULT");
    if (faults != nullptr) pl->board.fault(faults);
    const char *waves = std::getenv("TRITFORGE_WAVES");
    if (waves != nullptr && !pl->board.waves(waves)) {
      throw std::invalid_argument(std::string("TRITFORGE_WAVES: no waveform can be written to ") + waves +
                                  " (was the library built for it?)");
    }
    return pl.release();
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
