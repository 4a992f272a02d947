// The user logic as plain C++: the same streams, registers and errors, without pipelines. A word is computed when it is
// accepted and its result is there in the next cycle, so stall counters differ from the RTL's and nothing else.
#include <algorithm>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <string>
#include <vector>

#include "fabric.h"
#include "tf_formats.h"

namespace tritforge {

namespace {

constexpr size_t kQueueBeats = 64;  // results that wait for the output before the input stops

struct Beat {
  uint64_t data;
  bool last;
};

// Trits of a byte code, and whether it is one.
struct TritTable {
  int8_t trits[256][TF_TRITS_PER_BYTE];
  TritTable() {
    for (int code = 0; code < 256; code++) {
      int rest = code < TF_TRIT_CODES ? code : TF_ZERO_TRITS_CODE;
      for (int8_t &trit : trits[code]) {
        trit = static_cast<int8_t>(rest % 3 - 1);
        rest /= 3;
      }
    }
  }
};
const TritTable kTrits;

uint8_t byte_of(uint64_t word, int index) { return static_cast<uint8_t>(word >> (8 * index)); }

bool check_fails(uint64_t word) {
  uint8_t check = 0;
  for (int i = 0; i < 8; i++) check ^= byte_of(word, i);
  return check != 0;
}

// What every engine has: its counters, its sticky error, its results.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual void reset() {
    counters = {};
    errors = error_word = 0;
    index_ = 0;
    inside = false;
    output.clear();
  }
  struct Counters {
    uint32_t words_in, words_out, stall_in, stall_out, stall_turn, transfers;
  };
  Counters counters = {};
  uint32_t errors = 0;
  uint32_t error_word = 0;
  bool inside = false;
  std::deque<Beat> output;

  bool ready() const { return output.size() < kQueueBeats; }

  void accept(uint64_t word, bool last) {
    counters.words_in++;
    if (last) counters.transfers++;
    inside = !last;
    if (errors == 0) {
      const uint32_t error = take(word, last);
      if (error != 0) {
        errors = error;
        error_word = index_;
      }
    }
    index_ = last ? 0 : index_ + 1;
  }

 protected:
  // The effect of a word, or the error bit that it raises.
  virtual uint32_t take(uint64_t word, bool last) = 0;

 private:
  uint32_t index_ = 0;
};

class Matvec : public Engine {
 public:
  void reset() override {
    Engine::reset();
    state_ = State::kHeader;
    x_length_ = 0;
    half_ = false;
  }

 private:
  enum class State { kHeader, kX, kRows };

  uint32_t take(uint64_t word, bool last) override {
    switch (state_) {
      case State::kHeader: return header(word, last);
      case State::kX:
        if (last) return TF_ERROR_EARLY_TLAST;
        std::memcpy(x_ + 8 * position_, &word, 8);
        if (++position_ == (length_ + 7) / 8) {
          position_ = 0;
          state_ = State::kRows;
        }
        return 0;
      default: return row(word, last);
    }
  }

  uint32_t header(uint64_t word, bool last) {
    const uint32_t length = word >> 16 & 0xFFFF;
    const uint32_t rows = word >> 32 & 0xFFFFFF;
    const bool load = word >> 12 & 1;
    if (byte_of(word, 0) != TF_MATVEC_MAGIC) return TF_ERROR_BAD_MAGIC;
    if ((word >> 8 & 15) != TF_HEADER_VERSION) return TF_ERROR_BAD_VERSION;
    if (check_fails(word)) return TF_ERROR_BAD_CHECK;
    if ((word >> 13 & 7) != 0 || length == 0 || length > TF_MAX_ROW_LENGTH || rows == 0) return TF_ERROR_BAD_FIELD;
    if (last) return TF_ERROR_EARLY_TLAST;
    if (!load && length > x_length_) return TF_ERROR_X_MISSING;
    length_ = length;
    rows_ = rows;
    position_ = 0;
    sum_ = 0;
    if (load) x_length_ = length;
    state_ = load ? State::kX : State::kRows;
    return 0;
  }

  uint32_t row(uint64_t word, bool last) {
    const uint32_t words = (length_ + TF_TRITS_PER_WORD - 1) / TF_TRITS_PER_WORD;
    const bool row_last = position_ + 1 == words;
    for (int i = 0; i < 8; i++) {
      if (byte_of(word, i) >= TF_TRIT_CODES) return TF_ERROR_ILLEGAL_CODE;
    }
    if (last && !(row_last && rows_ == 1)) return TF_ERROR_EARLY_TLAST;
    const int8_t *x = x_ + TF_TRITS_PER_WORD * position_;
    int32_t sum = 0;
    for (int i = 0; i < 8; i++) {
      const int8_t *trits = kTrits.trits[byte_of(word, i)];
      for (int j = 0; j < TF_TRITS_PER_BYTE; j++) sum += trits[j] * x[TF_TRITS_PER_BYTE * i + j];
    }
    sum_ += sum;
    position_++;
    if (row_last) {
      const auto result = static_cast<uint32_t>(sum_);
      if (half_) {
        output.push_back(Beat{static_cast<uint64_t>(result) << 32 | lower_, last});
        half_ = false;
      } else if (last) {
        output.push_back(Beat{result, true});
      } else {
        lower_ = result;
        half_ = true;
      }
      position_ = 0;
      sum_ = 0;
      if (--rows_ == 0) state_ = State::kHeader;
    }
    return 0;
  }

  State state_ = State::kHeader;
  int8_t x_[TF_MAX_ROW_LENGTH + TF_TRITS_PER_WORD] = {};
  uint32_t x_length_ = 0;
  uint32_t length_ = 0;
  uint32_t rows_ = 0;
  uint32_t position_ = 0;  // word of x or of the row
  int32_t sum_ = 0;
  uint32_t lower_ = 0;
  bool half_ = false;
};

class Attention : public Engine {
 public:
  Attention(uint32_t head_dim, uint32_t positions)
      : words_(head_dim / 8),
        most_(positions),
        table_(positions <= TF_MAX_CONTEXT_BOARD ? tf_exp_table_15 : tf_exp_table_13),
        q_(head_dim),
        z_(positions),
        sums_(head_dim) {}

  void reset() override {
    Engine::reset();
    state_ = State::kHeader;
  }

 private:
  enum class State { kHeader, kQ, kK, kV };

  uint32_t take(uint64_t word, bool last) override {
    if (state_ == State::kHeader) return header(word, last);
    const bool word_last = position_ + 1 == words_;
    const bool row_last = row_ + 1 == length_;
    if (last && !(state_ == State::kV && word_last && row_last)) return TF_ERROR_EARLY_TLAST;
    int8_t bytes[8];
    std::memcpy(bytes, &word, 8);
    if (state_ == State::kQ) {
      std::memcpy(&q_[8 * position_], bytes, 8);
    } else if (state_ == State::kK) {
      for (int i = 0; i < 8; i++) dot_ += bytes[i] * q_[8 * position_ + i];
      if (word_last) score();
    } else {
      const uint32_t p = probability(z_[row_]);
      if (position_ == 0) denominator_ += p;
      for (int i = 0; i < 8; i++) sums_[8 * position_ + i] += static_cast<int32_t>(p) * bytes[i];
    }
    position_ = word_last ? 0 : position_ + 1;
    if (word_last) {
      if (state_ == State::kQ) {
        state_ = State::kK;
      } else {
        row_ = row_last ? 0 : row_ + 1;
        if (row_last && state_ == State::kV) {
          finish(last);
          state_ = State::kHeader;
        } else if (row_last) {
          state_ = State::kV;
        }
      }
    }
    return 0;
  }

  uint32_t header(uint64_t word, bool last) {
    const uint32_t length = word >> 16 & 0xFFFF;
    if (byte_of(word, 0) != TF_ATTENTION_MAGIC) return TF_ERROR_BAD_MAGIC;
    if ((word >> 8 & 15) != TF_HEADER_VERSION) return TF_ERROR_BAD_VERSION;
    if (check_fails(word)) return TF_ERROR_BAD_CHECK;
    if ((word >> 12 & 15) != 0 || length == 0 || length > most_ || (word >> 49 & 1) != 0 ||
        (word >> 50 & 63) != words_) {
      return TF_ERROR_BAD_FIELD;
    }
    if (last) return TF_ERROR_EARLY_TLAST;
    length_ = length;
    m_ = static_cast<int32_t>(word >> 32 & 0x1FFFF);
    position_ = row_ = 0;
    dot_ = 0;
    denominator_ = 0;
    std::fill(sums_.begin(), sums_.end(), 0);
    state_ = State::kQ;
    return 0;
  }

  void score() {
    // Arithmetic shift: C++20 defines it so.
    const auto z = static_cast<int32_t>((static_cast<int64_t>(dot_) * m_) >> TF_SCORE_SHIFT);
    z_[row_] = z;
    if (row_ == 0 || z > z_max_) z_max_ = z;
    dot_ = 0;
  }

  uint32_t probability(int32_t z) const {
    const auto distance = static_cast<uint32_t>(z_max_ - z);
    return distance < TF_EXP_TABLE_ENTRIES ? table_[distance] : 0;
  }

  void finish(bool last) {
    for (size_t i = 0; i < sums_.size(); i += 2) {
      output.push_back(Beat{static_cast<uint64_t>(static_cast<uint32_t>(sums_[i + 1])) << 32 |
                                static_cast<uint32_t>(sums_[i]),
                            false});
    }
    output.push_back(Beat{denominator_, last});
  }

  const uint32_t words_;
  const uint32_t most_;
  const uint16_t *const table_;
  State state_ = State::kHeader;
  uint32_t length_ = 0;
  int32_t m_ = 0;
  uint32_t position_ = 0;
  uint32_t row_ = 0;
  int32_t dot_ = 0;
  int32_t z_max_ = 0;
  uint32_t denominator_ = 0;
  std::vector<int8_t> q_;
  std::vector<int32_t> z_;
  std::vector<int32_t> sums_;
};

}  // namespace

struct Fabric::State {
  std::unique_ptr<Engine> engines[kEngines];
  tritforge_rtl_options options;
  uint64_t cycles = 0;
  uint32_t cycles_high = 0;
  uint32_t scratch = 0;
  bool pending = false;
  bool pending_write = false;
  uint32_t offset = 0;
  uint32_t value = 0;

  uint32_t read() {
    switch (offset) {
      case TF_REG_ID: return TF_CONTROL_ID;
      case TF_REG_VERSION: return TF_FORMATS_VERSION;
      case TF_REG_CONTENT_ID: return options.content_id;
      case TF_REG_CONFIG: return options.attention_positions << 16 | options.attention_head_dim / 8 << 8 | kEngines;
      case TF_REG_CYCLES_LO:
        cycles_high = static_cast<uint32_t>(cycles >> 32);
        return static_cast<uint32_t>(cycles);
      case TF_REG_CYCLES_HI: return cycles_high;
      case TF_REG_SCRATCH: return scratch;
      default: break;
    }
    if (offset < TF_ENGINE_BASE || offset >= TF_ENGINE_BASE + kEngines * TF_ENGINE_STRIDE) return 0;
    const Engine &engine = *engines[(offset - TF_ENGINE_BASE) / TF_ENGINE_STRIDE];
    switch ((offset - TF_ENGINE_BASE) % TF_ENGINE_STRIDE) {
      case TF_ENGINE_REG_WORDS_IN: return engine.counters.words_in;
      case TF_ENGINE_REG_WORDS_OUT: return engine.counters.words_out;
      case TF_ENGINE_REG_STALL_IN: return engine.counters.stall_in;
      case TF_ENGINE_REG_STALL_OUT: return engine.counters.stall_out;
      case TF_ENGINE_REG_STALL_TURN: return engine.counters.stall_turn;
      case TF_ENGINE_REG_TRANSFERS: return engine.counters.transfers;
      case TF_ENGINE_REG_ERRORS: return engine.errors;
      case TF_ENGINE_REG_ERROR_WORD: return engine.error_word;
      default: return 0;
    }
  }

  void write() {
    if (offset == TF_REG_SCRATCH) scratch = value;
    if (offset != TF_REG_CONTROL) return;
    for (unsigned e = 0; e < kEngines; e++) {
      if (value >> e & 1) engines[e]->reset();
      if (value >> 8 & 1) engines[e]->counters = {};
    }
  }
};

Fabric::Fabric(const tritforge_rtl_options &options) : state_(std::make_unique<State>()) {
  if (options.attention_positions == 0 || options.attention_positions > TF_MAX_CONTEXT) {
    throw std::invalid_argument("attention_positions must be 1 to " + std::to_string(TF_MAX_CONTEXT));
  }
  if (options.attention_head_dim == 0 || options.attention_head_dim % 8 != 0 || options.attention_head_dim > 504) {
    throw std::invalid_argument("attention_head_dim must be a multiple of 8 up to 504");
  }
  state_->options = options;
  for (unsigned e = 0; e < 2; e++) {
    state_->engines[e] = std::make_unique<Matvec>();
    state_->engines[2 + e] = std::make_unique<Attention>(options.attention_head_dim, options.attention_positions);
  }
}

Fabric::~Fabric() = default;

const char *Fabric::kind() { return "model"; }

void Fabric::reset() {
  for (auto &engine : state_->engines) engine->reset();
  state_->cycles = 0;
  state_->scratch = 0;
}

void Fabric::clock(Streams &streams) {
  for (unsigned e = 0; e < kEngines; e++) {
    Engine &engine = *state_->engines[e];
    streams.in_ready[e] = engine.ready();
    streams.out_valid[e] = !engine.output.empty();
    if (streams.out_valid[e]) {
      streams.out_data[e] = engine.output.front().data;
      streams.out_last[e] = engine.output.front().last;
      if (streams.out_ready[e]) {
        engine.output.pop_front();
        engine.counters.words_out++;
      }
    }
    if (streams.in_valid[e]) {
      if (streams.in_ready[e]) {
        engine.accept(streams.in_data[e], streams.in_last[e]);
      } else {
        engine.counters.stall_out++;
      }
    } else if (engine.inside && streams.in_ready[e]) {
      engine.counters.stall_in++;
    }
  }
  state_->cycles++;
  if (state_->pending) {
    state_->pending = false;
    if (state_->pending_write) {
      state_->write();
      state_->value = 0;
    } else {
      state_->value = state_->read();
    }
  }
}

void Fabric::begin_read(uint32_t offset) {
  state_->offset = offset & ~3u;
  state_->pending = true;
  state_->pending_write = false;
}

void Fabric::begin_write(uint32_t offset, uint32_t value) {
  state_->offset = offset & ~3u;
  state_->value = value;
  state_->pending = state_->pending_write = true;
}

bool Fabric::finished(uint32_t *value) {
  *value = state_->value;
  return !state_->pending;
}

void Fabric::skip(uint64_t cycles) { state_->cycles += cycles; }

bool Fabric::waves(const char *path) { return path == nullptr; }

}  // namespace tritforge
