// One AXI DMA 7.1 (PG021) as a driver sees it: registers, simple and scatter-gather transfers, errors.
//
// Modelled: RS, reset of both channels by either, Halted, Idle, the error and interrupt bits with their W1C, the
// interrupt threshold, CURDESC only while halted, TAILDESC, descriptor status and stale Cmplt, the width of the length
// fields, four beats taken before S2MM is armed, packets longer than their buffer, bus errors outside the buffer.
// Not modelled: the delay timer (IRQDelay), keyhole and cyclic mode, status/control streams, addresses above 32 bits,
// unaligned data (refused as an internal error, since the design has no realignment engine).
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "ddr.h"
#include "fabric.h"
#include "faults.h"
#include "memory.h"
#include "tritforge_rtl.h"

namespace tritforge {

// What the board shares with its DMAs.
struct DmaContext {
  const tritforge_rtl_options &options;
  Memory &memory;
  Ddr &ddr;
  Faults &faults;
  uint64_t changes = 0;   // counts changes of any status register
  std::string complaint;  // last thing a driver did wrong
};

struct Descriptor {
  uint32_t address = 0;  // of the descriptor itself
  uint32_t next = 0;
  uint32_t buffer = 0;
  uint32_t length = 0;
  bool sof = false;
  bool eof = false;
};

class Channel {
 public:
  Channel(DmaContext &context, unsigned engine, bool to_memory);
  virtual ~Channel() = default;

  uint32_t read(uint32_t offset) const;
  void write(uint32_t offset, uint32_t value);
  void reset();

  // Does time alone change anything here? (A channel that waits for a packet does not move.)
  virtual bool moving() const = 0;

  tritforge_rtl_channel_statistics statistics = {};

 protected:
  enum class Fetch { kNone, kWaiting, kReady };

  static constexpr uint32_t kRunStop = 1u << 0;
  static constexpr uint32_t kReset = 1u << 2;
  static constexpr uint32_t kHalted = 1u << 0;
  static constexpr uint32_t kIdle = 1u << 1;
  static constexpr uint32_t kSgIncluded = 1u << 3;
  static constexpr uint32_t kInternalError = 1u << 4;
  static constexpr uint32_t kSlaveError = 1u << 5;
  static constexpr uint32_t kDecodeError = 1u << 6;
  static constexpr uint32_t kSgInternalError = 1u << 8;
  static constexpr uint32_t kSgDecodeError = 1u << 10;
  static constexpr uint32_t kIocIrq = 1u << 12;
  static constexpr uint32_t kErrorIrq = 1u << 14;
  static constexpr uint32_t kIrqs = 7u << 12;

  void complain(const std::string &what);
  void set_status(uint32_t set, uint32_t clear = 0);
  void fail(uint32_t error_bit);
  // Has it anything to do at all?
  bool active() const { return start_left_ != 0 || work_; }
  // In the middle of a descriptor, with no timer and no fetch under way?
  bool steady() const {
    return start_left_ == 0 && work_ && !stuck_ && busy_ && latency_left_ == 0 && fetch_ != Fetch::kWaiting;
  }
  // Timers and descriptor fetches, once a cycle. True when a descriptor is there to be worked on.
  bool advance();
  // A new descriptor is taken into work: validity of its buffer. False after fail().
  bool accept_descriptor();
  // The descriptor is done: status word, interrupts, next one.
  void finish_descriptor(const Descriptor &descriptor, uint32_t transferred, uint32_t status_bits, bool packet_end);
  virtual void clear() = 0;  // what the subclass holds
  virtual bool drained() const = 0;

  DmaContext &context_;
  const unsigned engine_;
  const bool to_memory_;
  const bool scatter_gather_;
  DdrClient data_;

  uint32_t control_ = 0;
  uint32_t status_ = 0;
  uint32_t current_ = 0;
  uint32_t tail_ = 0;
  uint32_t address_ = 0;
  uint32_t length_ = 0;

  uint32_t start_left_ = 0;  // cycles until Halted falls
  bool stopping_ = false;    // RS was cleared; Halted rises when the work is done
  bool work_ = false;        // transfers are pending
  bool stuck_ = false;       // fault: never moves again until reset

  Fetch fetch_ = Fetch::kNone;
  uint32_t fetch_left_ = 0;
  uint32_t fetch_address_ = 0;
  Descriptor fetched_;

  bool busy_ = false;        // working_ is being moved
  Descriptor working_;
  uint32_t moved_ = 0;       // bytes of working_
  uint32_t latency_left_ = 0;
  uint32_t irq_left_ = 1;    // packets until IOC_Irq

 private:
  std::string name() const;
  uint32_t length_mask() const { return (1u << context_.options.length_width) - 1; }
  void begin_fetch(uint32_t address);
  void load_descriptor();
  void start_simple(uint32_t length);
  virtual void begin_packet() {}
};

// Memory → stream.
class Mm2s : public Channel {
 public:
  Mm2s(DmaContext &context, unsigned engine) : Channel(context, engine, false) {}
  // The S2MM channel that the packet's answer will come to; faults are ordered there.
  void pair_with(class S2mm *partner) { partner_ = partner; }
  void before(Streams &streams);
  void after(const Streams &streams);
  // Also while a packet is open on the stream: an engine inside a transfer counts the cycles that it waits.
  bool moving() const override { return active() || count_ != 0 || inside_; }
  // For the next cycles: nothing but beats from the middle of one descriptor, or nothing at all. False for neither.
  bool foresee(Supply &supply) const;
  // That many of these cycles have passed.
  void leap(uint64_t cycles);

 private:
  static constexpr unsigned kFifoBeats = 64;
  struct Beat {
    uint64_t data;
    bool last;  // of the packet
    bool end;   // of its descriptor
  };
  void clear() override;
  bool drained() const override { return count_ == 0; }
  void begin_packet() override;
  void fetch_beat();

  S2mm *partner_ = nullptr;
  Beat fifo_[kFifoBeats];
  unsigned head_ = 0;
  unsigned count_ = 0;
  std::deque<Descriptor> sent_;  // read whole, last beat still in the FIFO
  bool packet_open_ = false;     // the packet's first beat has been read
  bool inside_ = false;
  uint32_t halt_with_ = 0;       // fault: error bit to raise in the middle of this packet
  bool stick_ = false;           // fault: stop in the middle of this packet
  uint32_t flip_beat_ = 0;       // fault: 1 + index of the beat whose bit 0 is flipped
  uint32_t packet_beat_ = 0;
};

// Stream → memory.
class S2mm : public Channel {
 public:
  S2mm(DmaContext &context, unsigned engine) : Channel(context, engine, true) {}
  void before(Streams &streams);
  void after(const Streams &streams);
  bool moving() const override { return start_left_ != 0 || (work_ && (count_ != 0 || fetch_ != Fetch::kNone)); }
  // After the Mm2s: room for its results in the middle of one descriptor, or that nothing comes.
  bool foresee(Supply &supply) const;
  void leap(uint64_t cycles, uint64_t written);
  void order_wrong_word() { flip_next_ = true; }
  void order_short() { short_next_ = true; }

 private:
  static constexpr unsigned kHoldBeats = 4;  // taken before the channel is armed
  struct Beat {
    uint64_t data;
    bool last;
  };
  void clear() override;
  bool drained() const override { return true; }
  void store_beat();

  Beat hold_[kHoldBeats];
  unsigned head_ = 0;
  unsigned count_ = 0;
  bool packet_open_ = false;
  bool started_here_ = false;  // the packet began in this descriptor
  bool flip_next_ = false;
  bool short_next_ = false;
};

class Dma {
 public:
  Dma(DmaContext &context, unsigned engine);
  uint32_t read(uint32_t offset) const;
  void write(uint32_t offset, uint32_t value);
  void before(Streams &streams);
  void after(const Streams &streams) {
    mm2s.after(streams);
    s2mm.after(streams);
  }
  bool foresee(Supply &supply) const { return reset_left_ == 0 && mm2s.foresee(supply) && s2mm.foresee(supply); }
  void leap(uint64_t cycles, uint64_t written) {
    mm2s.leap(cycles);
    s2mm.leap(cycles, written);
  }
  bool moving() const { return reset_left_ != 0 || mm2s.moving() || s2mm.moving(); }

  Mm2s mm2s;
  S2mm s2mm;

 private:
  static constexpr uint32_t kResetCycles = 32;
  static constexpr uint32_t kS2mmBase = 0x30;
  DmaContext &context_;
  const unsigned engine_;
  uint32_t reset_left_ = 0;
};

}  // namespace tritforge
