// The memory wall: a budget of bytes a cycle that all ports share, bursts with gaps, and the latency of a first beat.
#pragma once

#include <cstdint>

#include "tritforge_rtl.h"

namespace tritforge {

// One reader or writer of memory (a DMA channel) at its HP port.
class Ddr;
class DdrClient {
 public:
  void attach(Ddr *ddr, unsigned hp_port) {
    ddr_ = ddr;
    pair_ = hp_port / 2;
  }
  // Cycles from now to the first beat of a new transfer.
  uint32_t latency() const;
  // A new transfer: bursts start anew.
  void start() { beat_ = 0; }
  // Once a cycle while a beat is wanted: may one move now?
  bool beat();

 private:
  Ddr *ddr_ = nullptr;
  unsigned pair_ = 0;
  uint32_t beat_ = 0;  // of the running burst
  uint32_t gap_ = 0;   // cycles left between two bursts
};

class Ddr {
 public:
  explicit Ddr(const tritforge_rtl_options &options) : options_(options) {}
  bool on() const { return options_.ddr != 0; }
  // Once a cycle, before the channels.
  void cycle() {
    if (!on()) return;
    fill(all_, options_.ddr_bytes_per_kilocycle);
    fill(pair_[0], options_.ddr_pair_bytes_per_kilocycle);
    fill(pair_[1], options_.ddr_pair_bytes_per_kilocycle);
  }
  // Budgets fill up while nobody asks.
  void skip() { all_ = pair_[0] = pair_[1] = kMost; }

 private:
  friend class DdrClient;
  static constexpr int64_t kBeat = 8 * 1000;       // thousandths of a byte
  static constexpr int64_t kMost = 4 * 16 * kBeat; // what a memory controller may have buffered: a burst a port

  static void fill(int64_t &budget, uint32_t bytes_per_kilocycle) {
    budget += bytes_per_kilocycle;
    if (budget > kMost) budget = kMost;
  }
  bool take(unsigned pair) {
    const bool paired = options_.ddr_pair_bytes_per_kilocycle != 0;
    if (all_ < kBeat || (paired && pair_[pair] < kBeat)) return false;
    all_ -= kBeat;
    if (paired) pair_[pair] -= kBeat;
    return true;
  }

  tritforge_rtl_options options_;
  int64_t all_ = 0;
  int64_t pair_[2] = {0, 0};
};

inline uint32_t DdrClient::latency() const { return ddr_->on() ? ddr_->options_.ddr_latency_cycles : 0; }

inline bool DdrClient::beat() {
  if (!ddr_->on()) return true;
  if (gap_ != 0) {
    gap_--;
    return false;
  }
  if (!ddr_->take(pair_)) return false;
  if (++beat_ == ddr_->options_.ddr_burst_beats) {
    beat_ = 0;
    gap_ = ddr_->options_.ddr_burst_gap_cycles;
  }
  return true;
}

}  // namespace tritforge
