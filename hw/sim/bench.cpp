// One engine alone at its pins, with random gaps on both streams: what a DMA never does, but the protocol allows.
//
// Compiled with a Verilated engine (prefix Vengine) into a library of its own for tests and for the mutation campaign.
// With BENCH_MUTANTS the design has an input `mutant_i` that switches one of many faults in (0: none).
#include <cstdint>
#include <memory>

#include "Vengine.h"
#include "verilated.h"

namespace {

// Marsaglia's xorshift: the same sequence everywhere.
struct Random {
  uint64_t state;
  uint32_t byte() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return static_cast<uint32_t>(state >> 32 & 0xFF);
  }
};

struct Bench {
  VerilatedContext context;
  std::unique_ptr<Vengine> top;
};

}  // namespace

extern "C" {

#pragma GCC visibility push(default)

struct bench_drive {
  uint32_t valid_of_256;     // chance of a new input beat in a cycle
  uint32_t ready_of_256;     // chance of a ready output in a cycle
  uint32_t burst_cycles;     // 1: a new draw each cycle; more: draws hold for as long
  uint32_t reset_first;      // cycles of reset before the first word; 0 leaves the engine as it is
  uint64_t seed;
  uint64_t quiet_cycles;     // the run ends after so many cycles in which no beat moved
  uint64_t stop_after_words; // the run ends after so many input beats (0: no such end)
  uint64_t most_cycles;
};

struct bench_outcome {
  uint64_t cycles;       // from the first to the last beat, both included
  uint64_t words_in;
  uint64_t words_out;
  uint64_t violations;   // output beats that changed or vanished while they waited
  uint64_t event_in;     // sums of the engine's event outputs
  uint64_t event_out;
  uint64_t stall_in;
  uint64_t stall_out;
  uint64_t stall_turn;
  uint64_t transfers;
  uint64_t overrun;      // output beats beyond the capacity
  uint32_t errors;
  uint32_t error_word;
};

void *bench_create(void) {
  auto *bench = new Bench;
  bench->context.randReset(2);
  bench->context.randSeed(1);
  bench->top = std::make_unique<Vengine>(&bench->context, "engine");
  return bench;
}

void bench_destroy(void *handle) {
  auto *bench = static_cast<Bench *>(handle);
  bench->top->final();
  delete bench;
}

void bench_mutant(void *handle, uint32_t mutant) {
#ifdef BENCH_MUTANTS
  static_cast<Bench *>(handle)->top->mutant_i = mutant;
#else
  (void)handle;
  (void)mutant;
#endif
}

// words[n] with last[n] go in; up to `capacity` beats come back in out and out_last.
void bench_run(void *handle, const uint64_t *words, const uint8_t *last, uint64_t n, const bench_drive *drive,
               uint64_t *out, uint8_t *out_last, uint64_t capacity, bench_outcome *outcome) {
  Vengine &top = *static_cast<Bench *>(handle)->top;
  Random random{drive->seed * 2654435769u + 88172645463325252ull};
  *outcome = {};
  top.s_axis_tvalid_i = 0;
  top.m_axis_tready_i = 0;
  for (uint32_t i = 0; i < drive->reset_first; i++) {
    top.rst_ni = 0;
    top.clk_i = 0;
    top.eval();
    top.clk_i = 1;
    top.eval();
  }
  top.rst_ni = 1;

  uint64_t sent = 0;
  uint64_t received = 0;
  uint64_t first = 0;
  uint64_t final_beat = 0;
  uint64_t quiet = 0;
  bool valid = false;       // a beat is offered; it stays until it is taken
  bool allow_valid = false;
  bool ready = false;
  bool waiting = false;     // an output beat was offered and not taken
  uint64_t waiting_data = 0;
  bool waiting_last = false;

  for (uint64_t cycle = 0; cycle < drive->most_cycles && quiet < drive->quiet_cycles; cycle++) {
    if (cycle % drive->burst_cycles == 0) {
      allow_valid = random.byte() < drive->valid_of_256;
      ready = random.byte() < drive->ready_of_256;
    }
    if (!valid && allow_valid && sent < n) valid = true;
    top.s_axis_tvalid_i = valid;
    // Garbage when there is no beat: the engine must not look.
    top.s_axis_tdata_i = valid ? words[sent] : 0xF5F5F5F5F5F5F5F5ull ^ cycle;
    top.s_axis_tlast_i = valid ? last[sent] : cycle & 1;
    top.m_axis_tready_i = ready;
    top.clk_i = 0;
    top.eval();
    const bool taken = valid && top.s_axis_tready_o;
    const bool given = top.m_axis_tvalid_o && ready;
    if (waiting && (!top.m_axis_tvalid_o || top.m_axis_tdata_o != waiting_data ||
                    static_cast<bool>(top.m_axis_tlast_o) != waiting_last)) {
      outcome->violations++;
    }
    waiting = top.m_axis_tvalid_o && !ready;
    waiting_data = top.m_axis_tdata_o;
    waiting_last = top.m_axis_tlast_o;
    if (given) {
      if (received < capacity) {
        out[received] = top.m_axis_tdata_o;
        out_last[received] = top.m_axis_tlast_o;
      } else {
        outcome->overrun++;
      }
      received++;
    }
    outcome->event_in += top.word_in_o;
    outcome->event_out += top.word_out_o;
    outcome->stall_in += top.stall_in_o;
    outcome->stall_out += top.stall_out_o;
    outcome->stall_turn += top.stall_turn_o;
    outcome->transfers += top.transfer_o;
    top.clk_i = 1;
    top.eval();
    if (taken) {
      if (sent == 0) first = cycle;
      sent++;
      valid = false;
    }
    if (taken || given) {
      final_beat = cycle;
      quiet = 0;
    } else {
      quiet++;
    }
    if (drive->stop_after_words != 0 && sent == drive->stop_after_words) break;
  }
  outcome->cycles = final_beat - first + 1;
  outcome->words_in = sent;
  outcome->words_out = received;
  outcome->errors = top.errors_o;
  outcome->error_word = top.error_word_o;
}

#pragma GCC visibility pop

}  // extern "C"
