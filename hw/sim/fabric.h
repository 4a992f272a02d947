// The user logic behind the DMAs: four engines and the control block, one clock edge at a time.
//
// Two implementations, chosen at link time: fabric_rtl.cpp (the Verilated design) and fabric_model.cpp (plain C++).
#pragma once

#include <cstdint>
#include <memory>

#include "tritforge_rtl.h"

namespace tritforge {

constexpr unsigned kEngines = 4;

// The eight AXI4-Streams around one clock edge. The caller fills in the first half before clock(), which fills in the
// second with what the logic showed before the edge; a beat has moved where valid and ready meet.
struct Streams {
  uint64_t in_data[kEngines] = {};
  bool in_valid[kEngines] = {};
  bool in_last[kEngines] = {};
  bool out_ready[kEngines] = {};

  bool in_ready[kEngines] = {};
  uint64_t out_data[kEngines] = {};
  bool out_valid[kEngines] = {};
  bool out_last[kEngines] = {};
};

// What one DMA would do in the next cycles if nothing happened but that its stream moves.
struct Supply {
  bool streaming = false;          // else it brings nothing and takes nothing
  const uint8_t *words = nullptr;  // the stream's next words, a cycle each
  uint64_t count = 0;              // of these, without the last of their descriptor
  uint8_t *results = nullptr;      // where the next results go
  uint64_t room = 0;               // results until their descriptor would end
};

class Fabric {
 public:
  explicit Fabric(const tritforge_rtl_options &options);
  ~Fabric();

  static const char *kind();

  // Cycles of reset.
  void reset();
  void clock(Streams &streams);

  // One register access of the control block at a time: begin, then clock() until finished().
  void begin_read(uint32_t offset);
  void begin_write(uint32_t offset, uint32_t value);
  // The access is over; the value read (0 after a write).
  bool finished(uint32_t *value);

  // Lets the clock counter run on without evaluating: nothing else may change in that time.
  void skip(uint64_t cycles);

  // Many cycles at once, at most `most`: every matrix engine takes a word of its supply a cycle and has its results
  // written, up to a cycle in which no result is on its way. Leaves all as single cycles would and returns how many
  // they were, with the results written per engine; 0 when what comes next must be looked at cycle by cycle.
  uint64_t leap(const Supply (&supplies)[kEngines], uint64_t most, uint64_t (&written)[kEngines]);

  // Waveform of what follows, or none for nullptr. False when this build cannot.
  bool waves(const char *path);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tritforge
