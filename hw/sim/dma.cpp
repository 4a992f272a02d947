#include "dma.h"

#include <cstdio>
#include <cstring>

namespace tritforge {

namespace {

constexpr uint32_t kControl = 0x00;
constexpr uint32_t kStatus = 0x04;
constexpr uint32_t kCurrent = 0x08;
constexpr uint32_t kTail = 0x10;
constexpr uint32_t kAddress = 0x18;
constexpr uint32_t kLength = 0x28;

constexpr uint32_t kControlReset = 0x00010002;  // threshold 1; bit 1 always reads 1
constexpr uint32_t kStartCycles = 8;            // from RS to Halted = 0
constexpr uint32_t kDescriptorBytes = 64;
constexpr uint32_t kComplete = 1u << 31;

uint32_t load32(const uint8_t *from) {
  uint32_t value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

std::string hex(uint32_t value) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%08X", static_cast<unsigned>(value));
  return text;
}

}  // namespace

// ------------------------------------------------------------------------------------------------ a channel's registers

Channel::Channel(DmaContext &context, unsigned engine, bool to_memory)
    : context_(context), engine_(engine), to_memory_(to_memory), scatter_gather_(context.options.scatter_gather != 0) {
  data_.attach(&context.ddr, context.options.ddr_port_of_engine[engine]);
  control_ = kControlReset;
  status_ = kHalted | (scatter_gather_ ? kSgIncluded | 1u << 16 : 0);
}

std::string Channel::name() const {
  return std::string("DMA ") + kEngineNames[engine_] + (to_memory_ ? " S2MM: " : " MM2S: ");
}

void Channel::complain(const std::string &what) { context_.complaint = name() + what; }

void Channel::set_status(uint32_t set, uint32_t clear) {
  const uint32_t now = (status_ & ~clear) | set;
  if (now != status_) {
    status_ = now;
    context_.changes++;
  }
}

void Channel::reset() {
  control_ = kControlReset;
  set_status(kHalted | (scatter_gather_ ? kSgIncluded | 1u << 16 : 0), ~0u);
  current_ = tail_ = address_ = length_ = 0;
  start_left_ = 0;
  stopping_ = work_ = stuck_ = busy_ = false;
  fetch_ = Fetch::kNone;
  irq_left_ = 1;
  clear();
}

// An error ends everything until reset: RS falls, Halted rises, the error bit stays.
void Channel::fail(uint32_t error_bit) {
  control_ &= ~kRunStop;
  work_ = busy_ = stopping_ = false;
  fetch_ = Fetch::kNone;
  set_status(error_bit | kHalted | kErrorIrq, kIdle);
}

uint32_t Channel::read(uint32_t offset) const {
  switch (offset) {
    case kControl: return control_;
    case kStatus: return status_;
    case kCurrent: return scatter_gather_ ? current_ : 0;
    case kTail: return scatter_gather_ ? tail_ : 0;
    case kAddress: return scatter_gather_ ? 0 : address_;
    case kLength: return scatter_gather_ ? 0 : length_;
    default: return 0;
  }
}

void Channel::write(uint32_t offset, uint32_t value) {
  switch (offset) {
    case kControl: {
      const bool was_running = control_ & kRunStop;
      control_ = (value & ~kReset) | 2u;
      if (scatter_gather_ && (value >> 16 & 0xFF) != 0) {
        irq_left_ = value >> 16 & 0xFF;
        set_status(irq_left_ << 16, 0xFFu << 16);
      }
      if (!was_running && (value & kRunStop)) {
        if (status_ & (kInternalError | kSlaveError | kDecodeError | kSgInternalError | kSgDecodeError)) {
          complain("RS set after an error without a reset");
          control_ &= ~kRunStop;
        } else {
          start_left_ = kStartCycles;
          stopping_ = false;
        }
      } else if (was_running && !(value & kRunStop)) {
        start_left_ = 0;
        stopping_ = true;
        if (!work_) {
          stopping_ = false;
          set_status(kHalted, kIdle);
        }
      }
      break;
    }
    case kStatus:
      set_status(0, value & kIrqs);
      break;
    case kCurrent:
      if (!scatter_gather_) {
        complain("CURDESC written in simple mode");
      } else if (!(status_ & kHalted)) {
        complain("CURDESC written while not halted");
      } else {
        current_ = value & ~0x3Fu;
        fetch_address_ = current_;
        if (value & 0x3Fu) complain("CURDESC " + hex(value) + " is not a multiple of 64");
      }
      break;
    case kTail:
      if (!scatter_gather_) {
        complain("TAILDESC written in simple mode");
      } else if (status_ & kHalted) {
        complain("TAILDESC written while halted");
      } else {
        tail_ = value & ~0x3Fu;
        if (!work_) {
          work_ = true;
          begin_fetch(fetch_address_);
        }
        set_status(0, kIdle);
      }
      break;
    case kAddress:
      if (scatter_gather_) {
        complain("address written in scatter-gather mode");
      } else {
        if (work_) complain("address written during a transfer");
        address_ = value;
      }
      break;
    case kLength:
      if (scatter_gather_) {
        complain("length written in scatter-gather mode");
      } else {
        start_simple(value);
      }
      break;
    default:
      if (value != 0) complain("register " + hex(offset) + " written");
      break;
  }
}

void Channel::start_simple(uint32_t value) {
  const uint32_t length = value & length_mask();
  if (length != value) complain("length " + hex(value) + " is cut to " + hex(length) + " by the length field's width");
  if (status_ & kHalted) {
    complain("length written while halted");
    return;
  }
  if (work_) {
    complain("length written during a transfer");
    return;
  }
  if (length == 0) {
    if (length == value) complain("length 0 written");
    return;
  }
  length_ = length;
  work_ = true;
  set_status(0, kIdle);
  fetched_ = Descriptor{0, 0, address_, length, true, true};
  fetch_ = Fetch::kReady;
}

// ------------------------------------------------------------------------------------------------ descriptors

void Channel::begin_fetch(uint32_t address) {
  fetch_address_ = address;
  fetch_ = Fetch::kWaiting;
  fetch_left_ = data_.latency();
}

void Channel::load_descriptor() {
  if (!context_.memory.holds(fetch_address_, kDescriptorBytes)) {
    complain("descriptor " + hex(fetch_address_) + " lies outside the buffer");
    fail(kSgDecodeError);
    return;
  }
  const uint8_t *raw = context_.memory.logic(fetch_address_);
  const uint32_t control = load32(raw + 0x18);
  if (load32(raw + 0x1C) & kComplete) {
    complain("descriptor " + hex(fetch_address_) + " still has Cmplt set");
    current_ = fetch_address_;
    fail(kSgInternalError);
    return;
  }
  fetched_.address = fetch_address_;
  fetched_.next = load32(raw) & ~0x3Fu;
  fetched_.buffer = load32(raw + 0x08);
  fetched_.length = control & length_mask();
  fetched_.sof = control >> 27 & 1;
  fetched_.eof = control >> 26 & 1;
  if (fetched_.length != (control & 0x3FFFFFF)) {
    complain("descriptor " + hex(fetch_address_) + ": length is cut by the length field's width");
  }
  fetch_ = Fetch::kReady;
}

bool Channel::accept_descriptor() {
  if (working_.length == 0) {
    complain("descriptor " + hex(working_.address) + " has length 0");
    fail(kInternalError);
    return false;
  }
  if (!context_.memory.holds(working_.buffer, working_.length)) {
    complain("transfer of " + std::to_string(working_.length) + " bytes at " + hex(working_.buffer) +
             " leaves the buffer");
    fail(kDecodeError);
    return false;
  }
  if (working_.buffer % 8 != 0 || (!to_memory_ && working_.length % 8 != 0)) {
    complain("transfer of " + std::to_string(working_.length) + " bytes at " + hex(working_.buffer) +
             " is not in whole words, and the design has no realignment engine");
    fail(kInternalError);
    return false;
  }
  return true;
}

bool Channel::advance() {
  if (start_left_ != 0 && --start_left_ == 0) set_status(0, kHalted);
  if (!work_ || stuck_) return false;
  statistics.busy_cycles++;
  if (fetch_ == Fetch::kWaiting) {
    if (fetch_left_ != 0) {
      fetch_left_--;
    } else {
      load_descriptor();
    }
  }
  if (!busy_ && fetch_ == Fetch::kReady) {
    working_ = fetched_;
    fetch_ = Fetch::kNone;
    if (scatter_gather_) current_ = working_.address;
    if (!accept_descriptor()) return false;
    busy_ = true;
    moved_ = 0;
    // A descriptor's fetch hides the latency of its data's first beat only behind earlier data.
    latency_left_ = drained() ? data_.latency() : 0;
    data_.start();
    // The next descriptor is fetched while this one's data move.
    if (scatter_gather_ && working_.address != tail_) begin_fetch(working_.next);
    begin_packet();
    if (!work_) return false;
  }
  if (!busy_) return false;
  if (latency_left_ != 0) {
    latency_left_--;
    return false;
  }
  return true;
}

void Channel::finish_descriptor(const Descriptor &descriptor, uint32_t transferred, uint32_t status_bits,
                                bool packet_end) {
  if (scatter_gather_) {
    const uint32_t status = kComplete | status_bits | transferred;
    std::memcpy(context_.memory.logic(descriptor.address) + 0x1C, &status, sizeof status);
    statistics.descriptors++;
    context_.changes++;
  } else {
    length_ = transferred;
  }
  if (packet_end) {
    statistics.transfers++;
    if (!scatter_gather_) {
      set_status(kIocIrq);
    } else if (--irq_left_ == 0) {
      irq_left_ = control_ >> 16 & 0xFF;
      if (irq_left_ == 0) irq_left_ = 1;
      set_status(kIocIrq);
    }
    if (scatter_gather_) set_status(irq_left_ << 16, 0xFFu << 16);
  }
  const bool last = !scatter_gather_ || descriptor.address == tail_;
  if (last) {
    work_ = false;
    fetch_address_ = descriptor.next;
    if (stopping_) {
      stopping_ = false;
      set_status(kHalted, kIdle);
    } else {
      set_status(kIdle);
    }
  }
}

// ------------------------------------------------------------------------------------------------ memory → stream

void Mm2s::clear() {
  head_ = count_ = 0;
  sent_.clear();
  packet_open_ = inside_ = stick_ = false;
  halt_with_ = flip_beat_ = packet_beat_ = 0;
}

void Mm2s::begin_packet() {
  if (packet_open_) return;
  packet_open_ = true;
  packet_beat_ = 0;
  flip_beat_ = halt_with_ = 0;
  stick_ = false;
  Faults &faults = context_.faults;
  faults.transfer_begins(engine_);
  if (faults.hits(Fault::kHalt, engine_)) halt_with_ = kInternalError;
  if (faults.hits(Fault::kSlaveError, engine_)) halt_with_ = kSlaveError;
  if (faults.hits(Fault::kDecodeError, engine_)) halt_with_ = kDecodeError;
  if (faults.hits(Fault::kSgError, engine_)) halt_with_ = scatter_gather_ ? kSgInternalError : kInternalError;
  if (faults.hits(Fault::kNeverIdle, engine_)) stick_ = true;
  if (faults.hits(Fault::kBadHeader, engine_)) flip_beat_ = 1;
  if (faults.hits(Fault::kWrongInput, engine_)) flip_beat_ = 2;
  if (faults.hits(Fault::kWrongWord, engine_)) partner_->order_wrong_word();
  if (faults.hits(Fault::kShortS2mm, engine_)) partner_->order_short();
}

void Mm2s::fetch_beat() {
  if (halt_with_ != 0 || stick_) {
    if (moved_ * 2 >= working_.length) {  // half of it is gone
      if (halt_with_ != 0) {
        fail(halt_with_);
      } else {
        stuck_ = true;
      }
      return;
    }
  }
  Beat &beat = fifo_[(head_ + count_) % kFifoBeats];
  std::memcpy(&beat.data, context_.memory.logic(working_.buffer) + moved_, 8);
  if (++packet_beat_ == flip_beat_) beat.data ^= 1;
  moved_ += 8;
  beat.end = moved_ == working_.length;
  beat.last = beat.end && working_.eof;
  count_++;
  if (beat.end) {
    busy_ = false;
    if (beat.last) packet_open_ = false;
    sent_.push_back(working_);
    // More may have been queued since this descriptor was taken into work.
    if (scatter_gather_ && working_.address != tail_ && fetch_ == Fetch::kNone) {
      fetch_ = Fetch::kWaiting;
      fetch_address_ = working_.next;
      fetch_left_ = data_.latency();
    }
  }
}

void Mm2s::before(Streams &streams) {
  if (active() && advance() && count_ < kFifoBeats && data_.beat()) fetch_beat();
  if (count_ == 0) {
    streams.in_valid[engine_] = false;
    if (work_) statistics.memory_cycles++;
    return;
  }
  const Beat &beat = fifo_[head_];
  streams.in_valid[engine_] = true;
  streams.in_data[engine_] = beat.data;
  streams.in_last[engine_] = beat.last;
}

void Mm2s::after(const Streams &streams) {
  if (!(streams.in_valid[engine_] && streams.in_ready[engine_]) || count_ == 0) return;
  const Beat beat = fifo_[head_];
  head_ = (head_ + 1) % kFifoBeats;
  count_--;
  statistics.beats++;
  inside_ = !beat.last;
  if (beat.end && !sent_.empty()) {
    const Descriptor descriptor = sent_.front();
    sent_.pop_front();
    finish_descriptor(descriptor, descriptor.length, 0, beat.last);
    // The tail was moved on after its descriptor had been read.
    if (scatter_gather_ && work_ && !busy_ && sent_.empty() && fetch_ == Fetch::kNone) {
      fetch_ = Fetch::kWaiting;
      fetch_address_ = descriptor.next;
      fetch_left_ = data_.latency();
    }
  }
}

bool Mm2s::foresee(Supply &supply) const {
  if (!active() && count_ == 0) return true;
  if (!steady() || count_ != 0 || !sent_.empty() || !packet_open_ || !inside_) return false;
  if (halt_with_ != 0 || stick_ || flip_beat_ > packet_beat_) return false;
  supply.streaming = true;
  supply.words = context_.memory.logic(working_.buffer) + moved_;
  supply.count = (working_.length - moved_) / 8 - 1;
  return true;
}

// Each cycle one beat was read and went on at once.
void Mm2s::leap(uint64_t cycles) {
  if (!work_) return;
  statistics.busy_cycles += cycles;
  statistics.beats += cycles;
  packet_beat_ += static_cast<uint32_t>(cycles);
  moved_ += static_cast<uint32_t>(8 * cycles);
}

// ------------------------------------------------------------------------------------------------ stream → memory

void S2mm::clear() {
  head_ = count_ = 0;
  packet_open_ = started_here_ = flip_next_ = short_next_ = false;
}

void S2mm::store_beat() {
  Beat beat = hold_[head_];
  if (!packet_open_) {
    packet_open_ = started_here_ = true;
    if (flip_next_) beat.data ^= 1;
    flip_next_ = false;
    if (short_next_) {
      short_next_ = false;
      complain("the packet is longer than its buffer (ordered)");
      fail(kInternalError);
      return;
    }
  }
  if (working_.length - moved_ < 8) {
    complain("the packet is longer than its buffer of " + std::to_string(working_.length) + " bytes");
    fail(kInternalError);
    return;
  }
  std::memcpy(context_.memory.logic(working_.buffer) + moved_, &beat.data, 8);
  moved_ += 8;
  head_ = (head_ + 1) % kHoldBeats;
  count_--;
  statistics.beats++;
  if (beat.last) {
    busy_ = false;
    packet_open_ = false;
  } else if (moved_ == working_.length) {
    if (!scatter_gather_) {
      complain("the packet is longer than its buffer of " + std::to_string(working_.length) + " bytes");
      fail(kInternalError);
      return;
    }
    busy_ = false;
  }
  if (!busy_) {
    const Descriptor descriptor = working_;
    const uint32_t bits = (started_here_ ? 1u << 27 : 0) | (beat.last ? 1u << 26 : 0);
    started_here_ = false;
    finish_descriptor(descriptor, moved_, bits, beat.last);
    if (scatter_gather_ && work_ && fetch_ == Fetch::kNone) {
      fetch_ = Fetch::kWaiting;
      fetch_address_ = descriptor.next;
      fetch_left_ = data_.latency();
    }
  }
}

void S2mm::before(Streams &streams) {
  if (active() && advance() && count_ != 0) {
    if (data_.beat()) {
      store_beat();
    } else {
      statistics.memory_cycles++;
    }
  }
  streams.out_ready[engine_] = count_ < kHoldBeats;
}

void S2mm::after(const Streams &streams) {
  if (!(streams.out_valid[engine_] && streams.out_ready[engine_])) return;
  hold_[(head_ + count_) % kHoldBeats] = Beat{streams.out_data[engine_], streams.out_last[engine_]};
  count_++;
}

bool S2mm::foresee(Supply &supply) const {
  if (count_ != 0) return false;
  if (!supply.streaming && !active()) return true;
  if (!steady() || (!packet_open_ && (flip_next_ || short_next_))) return false;
  const uint32_t words = (working_.length - moved_) / 8;
  supply.results = context_.memory.logic(working_.buffer) + moved_;
  supply.room = words != 0 ? words - 1 : 0;
  return true;
}

void S2mm::leap(uint64_t cycles, uint64_t written) {
  if (!work_) return;
  statistics.busy_cycles += cycles;
  statistics.beats += written;
  moved_ += static_cast<uint32_t>(8 * written);
  if (written != 0 && !packet_open_) packet_open_ = started_here_ = true;
}

// ------------------------------------------------------------------------------------------------ both channels

Dma::Dma(DmaContext &context, unsigned engine)
    : mm2s(context, engine), s2mm(context, engine), context_(context), engine_(engine) {
  mm2s.pair_with(&s2mm);
}

uint32_t Dma::read(uint32_t offset) const {
  const bool second = offset >= kS2mmBase;
  const uint32_t value = second ? s2mm.read(offset - kS2mmBase) : mm2s.read(offset);
  const bool control = offset == kControl || offset == kS2mmBase + kControl;
  return control && reset_left_ != 0 ? value | 1u << 2 : value;
}

void Dma::write(uint32_t offset, uint32_t value) {
  const bool control = offset == kControl || offset == kS2mmBase + kControl;
  if (reset_left_ != 0) {
    context_.complaint = std::string("DMA ") + kEngineNames[engine_] + ": register written during reset";
    return;
  }
  if (control && (value & 1u << 2)) {  // either channel's bit resets both
    mm2s.reset();
    s2mm.reset();
    reset_left_ = kResetCycles;
    context_.changes++;
    return;
  }
  if (offset >= kS2mmBase) {
    s2mm.write(offset - kS2mmBase, value);
  } else {
    mm2s.write(offset, value);
  }
}

void Dma::before(Streams &streams) {
  if (reset_left_ != 0 && --reset_left_ == 0) context_.changes++;
  mm2s.before(streams);
  s2mm.before(streams);
}

}  // namespace tritforge
