// The simulated board around the user logic: registers by address, four DMAs, memory, time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "ddr.h"
#include "dma.h"
#include "fabric.h"
#include "faults.h"
#include "memory.h"
#include "tritforge_rtl.h"

namespace tritforge {

class Board {
 public:
  // Throws std::invalid_argument naming the option that cannot be.
  explicit Board(const tritforge_rtl_options &options);

  uint32_t read32(uint32_t address);
  void write32(uint32_t address, uint32_t value);
  uint8_t *memory() { return memory_.processor(); }
  void clean(uint64_t offset, uint64_t bytes) { statistics_.cleaned_bytes += memory_.clean(offset, bytes); }
  void invalidate(uint64_t offset, uint64_t bytes) { statistics_.invalidated_bytes += memory_.invalidate(offset, bytes); }
  void barrier();
  void advance(uint64_t cycles);
  uint64_t wait(uint64_t max_cycles);
  uint64_t time_ns() const;
  tritforge_rtl_statistics statistics() const;
  void clear_statistics();
  const char *complaint();
  void fault(const std::string &list) { faults_.arm(list); }
  bool waves(const char *path) { return fabric_.waves(path); }

 private:
  void cycle();
  void run(uint64_t cycles);
  bool quiet() const;
  // At most `most` cycles at once, when they can be foreseen; how many.
  uint64_t leap(uint64_t most);
  uint64_t run_until_change(uint64_t most);
  uint32_t read_dma(uint32_t address);
  uint32_t access_control(bool write, uint32_t offset, uint32_t value);

  tritforge_rtl_options options_;
  Memory memory_;
  Ddr ddr_;
  Faults faults_;
  DmaContext context_;
  std::unique_ptr<Dma> dma_[kEngines];
  Fabric fabric_;
  Streams streams_;
  tritforge_rtl_statistics statistics_ = {};
  uint64_t cycles_ = 0;         // since creation; statistics_ may be cleared
  uint64_t last_beat_ = 0;      // cycle of the last beat on any stream
  std::unordered_map<uint32_t, uint64_t> seen_;  // changes when a register was last read, nothing written since
  std::string shown_complaint_;
};

}  // namespace tritforge
