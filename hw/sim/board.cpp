#include "board.h"

#include <stdexcept>

#include "tf_formats.h"

namespace tritforge {

namespace {

// The control block's answer takes this many cycles of an access; the rest is the way through the interconnect.
constexpr uint32_t kAnswerCycles = 4;
constexpr uint32_t kResetCycles = 16;
// An engine has sent what it can when no stream has moved for longer than its pipeline is.
constexpr uint64_t kSettleCycles = 64;

const tritforge_rtl_options &checked(const tritforge_rtl_options &options) {
  auto refuse = [](const std::string &what) { throw std::invalid_argument(what); };
  if (options.interface != TRITFORGE_RTL_INTERFACE) {
    refuse("interface is " + std::to_string(options.interface) + "; this library has " +
           std::to_string(TRITFORGE_RTL_INTERFACE));
  }
  if (options.physical_base % 4096 != 0) refuse("physical_base is not a multiple of 4096");
  if (options.memory_bytes == 0 || options.memory_bytes > 0x40000000u ||
      options.physical_base + options.memory_bytes > 0x40000000ull) {
    refuse("the buffer must lie below 0x40000000 and have at least one byte");
  }
  if (options.length_width < 8 || options.length_width > 26) refuse("length_width must be 8 to 26");
  if (options.clock_khz == 0) refuse("clock_khz must not be 0");
  if (options.access_cycles < 8) refuse("access_cycles must be at least 8");
  if (options.poll_cycles == 0) refuse("poll_cycles must not be 0");
  if (options.ddr && (options.ddr_bytes_per_kilocycle == 0 || options.ddr_burst_beats == 0)) {
    refuse("ddr_bytes_per_kilocycle and ddr_burst_beats must not be 0");
  }
  for (uint32_t port : options.ddr_port_of_engine) {
    if (port > 3) refuse("ddr_port_of_engine must be 0 to 3");
  }
  return options;
}

}  // namespace

Board::Board(const tritforge_rtl_options &options)
    : options_(checked(options)),
      memory_(options.physical_base, options.memory_bytes, options.shadow != 0),
      ddr_(options_),
      context_{options_, memory_, ddr_, faults_, 0, {}},
      fabric_(options_) {
  for (unsigned engine = 0; engine < kEngines; engine++) dma_[engine] = std::make_unique<Dma>(context_, engine);
  fabric_.reset();
  run(kResetCycles);
}

void Board::cycle() {
  ddr_.cycle();
  // Who asks first for the memory's budget rotates.
  const unsigned first = static_cast<unsigned>(cycles_) % kEngines;
  for (unsigned i = 0; i < kEngines; i++) dma_[(first + i) % kEngines]->before(streams_);
  fabric_.clock(streams_);
  bool moved = false;
  for (unsigned engine = 0; engine < kEngines; engine++) {
    dma_[engine]->after(streams_);
    moved = moved || (streams_.in_valid[engine] && streams_.in_ready[engine]) ||
            (streams_.out_valid[engine] && streams_.out_ready[engine]);
  }
  cycles_++;
  statistics_.cycles++;
  statistics_.clocked_cycles++;
  if (moved) last_beat_ = cycles_;
}

bool Board::quiet() const {
  if (cycles_ - last_beat_ < kSettleCycles) return false;
  for (const auto &dma : dma_) {
    if (dma->moving()) return false;
  }
  return true;
}

uint64_t Board::leap(uint64_t most) {
  // The memory's budget is shared out cycle by cycle.
  if (options_.single_steps || ddr_.on()) return 0;
  Supply supplies[kEngines];
  bool streaming = false;
  for (unsigned engine = 0; engine < kEngines; engine++) {
    if (!dma_[engine]->foresee(supplies[engine])) return 0;
    streaming = streaming || supplies[engine].streaming;
  }
  if (!streaming) return 0;
  // Results must not fall where words, or another engine's results, are still to come.
  auto apart = [](const uint8_t *a, uint64_t a_words, const uint8_t *b, uint64_t b_words) {
    return a + 8 * a_words <= b || b + 8 * b_words <= a;
  };
  for (const Supply &writer : supplies) {
    if (!writer.streaming) continue;
    for (const Supply &other : supplies) {
      if (!other.streaming) continue;
      if (!apart(writer.results, writer.room, other.words, other.count)) return 0;
      if (&writer != &other && !apart(writer.results, writer.room, other.results, other.room)) return 0;
    }
  }
  uint64_t written[kEngines];
  const uint64_t cycles = fabric_.leap(supplies, most, written);
  if (cycles == 0) return 0;
  for (unsigned engine = 0; engine < kEngines; engine++) dma_[engine]->leap(cycles, written[engine]);
  cycles_ += cycles;
  statistics_.cycles += cycles;
  last_beat_ = cycles_;
  return cycles;
}

void Board::run(uint64_t cycles) {
  while (cycles != 0) {
    if (quiet()) {
      fabric_.skip(cycles);
      ddr_.skip();
      cycles_ += cycles;
      statistics_.cycles += cycles;
      return;
    }
    const uint64_t leapt = leap(cycles);
    if (leapt == 0) cycle();
    cycles -= leapt != 0 ? leapt : 1;
  }
}

uint64_t Board::run_until_change(uint64_t most) {
  const uint64_t changes = context_.changes;
  uint64_t passed = 0;
  while (passed < most && context_.changes == changes && !quiet()) {
    const uint64_t leapt = leap(most - passed);  // in which no status register changes
    if (leapt == 0) cycle();
    passed += leapt != 0 ? leapt : 1;
  }
  return passed;
}

uint64_t Board::wait(uint64_t max_cycles) { return run_until_change(max_cycles); }

void Board::advance(uint64_t cycles) { run(cycles); }

void Board::barrier() {
  statistics_.barriers++;
  memory_.barrier();
}

uint32_t Board::read_dma(uint32_t address) {
  const uint32_t engine = (address - TF_DMA_BASE) / TF_DMA_STRIDE;
  const uint32_t offset = (address - TF_DMA_BASE) % TF_DMA_STRIDE;
  run(options_.access_cycles);
  // The same register again, nothing written and no channel changed since: a poll.
  auto seen = seen_.find(address);
  if (seen != seen_.end() && seen->second == context_.changes) run_until_change(options_.poll_cycles);
  seen_[address] = context_.changes;
  return dma_[engine]->read(offset);
}

uint32_t Board::access_control(bool write, uint32_t offset, uint32_t value) {
  // Clocked even when all is quiet: an access is something that happens.
  run(options_.access_cycles - kAnswerCycles);
  if (write) {
    fabric_.begin_write(offset, value);
  } else {
    fabric_.begin_read(offset);
  }
  uint32_t answer = 0;
  for (uint32_t i = 0; i < kAnswerCycles; i++) cycle();
  if (!fabric_.finished(&answer)) throw std::logic_error("the control block does not answer");
  return answer;
}

uint32_t Board::read32(uint32_t address) {
  statistics_.register_reads++;
  if (address % 4 == 0 && address >= TF_DMA_BASE && address - TF_DMA_BASE < kEngines * TF_DMA_STRIDE) {
    return read_dma(address);
  }
  if (address % 4 == 0 && address >= TF_CONTROL_BASE && address - TF_CONTROL_BASE < TF_SEGMENT_BYTES) {
    const uint32_t offset = (address - TF_CONTROL_BASE) & 0xFFF;  // the block has 12 address bits
    const uint32_t value = access_control(false, offset, 0);
    return offset == TF_REG_CONTENT_ID && faults_.always(Fault::kStaleContentId) ? ~value : value;
  }
  context_.complaint = "read of address " + std::to_string(address) + ", where nothing answers";
  return 0xFFFFFFFFu;
}

void Board::write32(uint32_t address, uint32_t value) {
  statistics_.register_writes++;
  seen_.clear();
  if (address % 4 == 0 && address >= TF_DMA_BASE && address - TF_DMA_BASE < kEngines * TF_DMA_STRIDE) {
    run(options_.access_cycles);
    dma_[(address - TF_DMA_BASE) / TF_DMA_STRIDE]->write((address - TF_DMA_BASE) % TF_DMA_STRIDE, value);
    return;
  }
  if (address % 4 == 0 && address >= TF_CONTROL_BASE && address - TF_CONTROL_BASE < TF_SEGMENT_BYTES) {
    access_control(true, (address - TF_CONTROL_BASE) & 0xFFF, value);
    return;
  }
  context_.complaint = "write to address " + std::to_string(address) + ", where nothing answers";
}

uint64_t Board::time_ns() const {
  // A period of clock_khz cycles is a millisecond; so nothing overflows, and 32-bit machines have no 128-bit integers.
  const uint64_t ns = cycles_ / options_.clock_khz * 1000000 + cycles_ % options_.clock_khz * 1000000 / options_.clock_khz;
  return faults_.always(Fault::kWrongClock) ? ns / 4 * 5 : ns;
}

tritforge_rtl_statistics Board::statistics() const {
  tritforge_rtl_statistics out = statistics_;
  for (unsigned engine = 0; engine < kEngines; engine++) {
    out.mm2s[engine] = dma_[engine]->mm2s.statistics;
    out.s2mm[engine] = dma_[engine]->s2mm.statistics;
  }
  return out;
}

void Board::clear_statistics() {
  statistics_ = {};
  for (auto &dma : dma_) dma->mm2s.statistics = dma->s2mm.statistics = {};
}

const char *Board::complaint() {
  shown_complaint_.swap(context_.complaint);
  context_.complaint.clear();
  return shown_complaint_.c_str();
}

}  // namespace tritforge
