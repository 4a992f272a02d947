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

extern "C" {
#include "ternary.h"
}

namespace tritforge {

namespace {

constexpr size_t kQueueBeats = 64;  // results that wait for the output before the input stops
constexpr uint64_t kLeastLeap = 8;  // fewer cycles are as fast one by one
constexpr uint64_t kBlockRows = 8;  // checked and then multiplied while the first cache still has them

struct Beat {
  uint64_t data;
  bool last;
};

uint8_t byte_of(uint64_t word, int index) { return static_cast<uint8_t>(word >> (8 * index)); }

bool check_fails(uint64_t word) {
  uint8_t check = 0;
  for (int i = 0; i < 8; i++) check ^= byte_of(word, i);
  return check != 0;
}

// The first of `count` words at `words` with a byte that is no code, or `count`.
uint64_t legal_words(const uint8_t *words, uint64_t count) {
  constexpr uint64_t kBlock = 512;  // bytes; the maximum of a block is found without branches
  const uint64_t bytes = 8 * count;
  for (uint64_t at = 0; at < bytes; at += kBlock) {
    const uint64_t end = std::min(bytes, at + kBlock);
    uint8_t most = 0;
    for (uint64_t i = at; i < end; i++) most = std::max(most, words[i]);
    if (most < TF_TRIT_CODES) continue;
    for (uint64_t i = at; i < end; i++) {
      if (words[i] >= TF_TRIT_CODES) return i / 8;
    }
  }
  return count;
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

  // A leap (Fabric::leap) in three steps, all of them for words that the supply holds. At most how many words, from
  // `most` down, end where no result is on its way.
  virtual uint64_t foresee(const Supply &, uint64_t) const { return 0; }
  // Works them out without a change to what can be seen; how many of them are legal.
  virtual uint64_t work_out(const Supply &, uint64_t) { return 0; }
  // Takes words that were worked out; how many results they gave.
  virtual uint64_t take_worked_out(const Supply &, uint64_t) { return 0; }
  uint64_t leap(const Supply &supply, uint64_t words) {
    const uint64_t written = take_worked_out(supply, words);
    counters.words_in += static_cast<uint32_t>(words);
    counters.words_out += static_cast<uint32_t>(written);
    index_ += static_cast<uint32_t>(words);
    return written;
  }

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
  Matvec() : ternary_(tf_ternary_open(TF_MAX_ROW_LENGTH, 0)) {
    if (!ternary_) throw std::bad_alloc();
  }

  void reset() override {
    Engine::reset();
    state_ = State::kHeader;
    x_length_ = 0;
    half_ = false;
  }

  // A result shows one cycle after the word that completes it and is written in the next.
  uint64_t foresee(const Supply &supply, uint64_t most) const override {
    if (state_ != State::kRows || errors != 0 || !inside || !output.empty() || words_ < 2) return 0;
    const uint64_t before_last = static_cast<uint64_t>(rows_) * words_ - position_ - 1;
    uint64_t words = std::min({most, supply.count, before_last});
    if (results_of(words) > supply.room) words = words_until(supply.room + 1) - 1;
    const uint64_t results = results_of(words);
    if (results != 0 && words_until(results) + 2 > words) words = words_until(results) - 1;
    return words;
  }

  uint64_t work_out(const Supply &supply, uint64_t words) override {
    const uint64_t first = words_ - position_;  // of the open row
    sums_.clear();
    uint64_t legal = legal_words(supply.words, std::min(words, first));
    if (legal < first) return legal;
    uint8_t row[sizeof row_];
    std::memcpy(row, row_, 8 * position_);
    std::memcpy(row + 8 * position_, supply.words, 8 * first);
    sums_.resize(1 + (words - first) / words_);
    tf_ternary_rows(ternary_.get(), row, 1, sizeof row, sums_.data());
    size_t done = 1;
    while (legal < words) {
      const uint64_t block = std::min(words - legal, kBlockRows * words_);
      const uint64_t found = legal_words(supply.words + 8 * legal, block);
      const auto rows = static_cast<uint32_t>(found / words_);
      tf_ternary_rows(ternary_.get(), supply.words + 8 * legal, rows, 8 * (words - legal), sums_.data() + done);
      done += rows;
      legal += found;
      if (found < block) break;
    }
    sums_.resize(done);
    return legal;
  }

  uint64_t take_worked_out(const Supply &supply, uint64_t words) override {
    const uint64_t rows = (position_ + words) / words_;
    uint64_t written = 0;
    for (uint64_t row = 0; row < rows; row++) {
      const auto result = static_cast<uint32_t>(sums_[row]);
      if (half_) {
        const uint64_t both = static_cast<uint64_t>(result) << 32 | lower_;
        std::memcpy(supply.results + 8 * written++, &both, 8);
      } else {
        lower_ = result;
      }
      half_ = !half_;
    }
    const uint64_t end = position_ + words;
    const uint64_t kept = rows == 0 ? words : end % words_;  // of the row that remains open
    if (rows != 0) position_ = 0;
    std::memcpy(row_ + 8 * position_, supply.words + 8 * (words - kept), 8 * kept);
    position_ += static_cast<uint32_t>(kept);
    rows_ -= static_cast<uint32_t>(rows);
    return written;
  }

 private:
  enum class State { kHeader, kX, kRows };

  uint64_t results_of(uint64_t words) const { return ((position_ + words) / words_ + half_) / 2; }
  uint64_t words_until(uint64_t result) const { return (2 * result - half_) * words_ - position_; }

  uint32_t take(uint64_t word, bool last) override {
    switch (state_) {
      case State::kHeader: return header(word, last);
      case State::kX:
        if (last) return TF_ERROR_EARLY_TLAST;
        std::memcpy(x_ + 8 * position_, &word, 8);
        if (++position_ == (length_ + 7) / 8) begin_rows();
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
    words_ = (length + TF_TRITS_PER_WORD - 1) / TF_TRITS_PER_WORD;
    rows_ = rows;
    position_ = 0;
    if (load) {
      x_length_ = length;
      state_ = State::kX;
    } else {
      begin_rows();
    }
    return 0;
  }

  void begin_rows() {
    position_ = 0;
    state_ = State::kRows;
    // Whole words: trits behind the row's end meet what x's memory holds there, as in the circuit.
    tf_ternary_set_x(ternary_.get(), x_, words_ * TF_TRITS_PER_WORD, nullptr);
  }

  uint32_t row(uint64_t word, bool last) {
    const bool row_last = position_ + 1 == words_;
    for (int i = 0; i < 8; i++) {
      if (byte_of(word, i) >= TF_TRIT_CODES) return TF_ERROR_ILLEGAL_CODE;
    }
    if (last && !(row_last && rows_ == 1)) return TF_ERROR_EARLY_TLAST;
    std::memcpy(row_ + 8 * position_, &word, 8);
    position_++;
    if (row_last) {
      int32_t sum;
      tf_ternary_rows(ternary_.get(), row_, 1, sizeof row_, &sum);
      const auto result = static_cast<uint32_t>(sum);
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
      if (--rows_ == 0) state_ = State::kHeader;
    }
    return 0;
  }

  struct Close {
    void operator()(tf_ternary *ternary) const { tf_ternary_close(ternary); }
  };

  const std::unique_ptr<tf_ternary, Close> ternary_;
  State state_ = State::kHeader;
  int8_t x_[TF_MAX_ROW_LENGTH + TF_TRITS_PER_WORD] = {};
  uint8_t row_[(TF_MAX_ROW_LENGTH / TF_TRITS_PER_WORD + 1) * 8] = {};  // words of the open row so far
  uint32_t x_length_ = 0;
  uint32_t length_ = 0;
  uint32_t words_ = 0;  // of a row
  uint32_t rows_ = 0;
  uint32_t position_ = 0;  // word of x or of the row
  uint32_t lower_ = 0;
  bool half_ = false;
  std::vector<int32_t> sums_;  // of the rows that end in the leap under way
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

namespace {

// The most cycles that suit every engine.
uint64_t common(const std::unique_ptr<Engine> (&engines)[kEngines], const Supply (&supplies)[kEngines], uint64_t most) {
  for (bool agreed = false; !agreed;) {
    agreed = true;
    for (unsigned e = 0; e < kEngines; e++) {
      if (!supplies[e].streaming) continue;
      const uint64_t words = engines[e]->foresee(supplies[e], most);
      agreed = agreed && words == most;
      most = words;
    }
  }
  return most;
}

}  // namespace

// In one thread: a leap is tens of microseconds of work, and a second thread cost more than it took over.
uint64_t Fabric::leap(const Supply (&supplies)[kEngines], uint64_t most, uint64_t (&written)[kEngines]) {
  for (unsigned e = 0; e < kEngines; e++) {
    written[e] = 0;
    if (!supplies[e].streaming && !state_->engines[e]->output.empty()) return 0;
  }
  uint64_t cycles = common(state_->engines, supplies, most);
  if (cycles < kLeastLeap) return 0;
  uint64_t legal = cycles;
  for (unsigned e = 0; e < kEngines; e++) {
    if (supplies[e].streaming) legal = std::min(legal, state_->engines[e]->work_out(supplies[e], cycles));
  }
  cycles = common(state_->engines, supplies, legal);
  if (cycles < kLeastLeap) return 0;
  for (unsigned e = 0; e < kEngines; e++) {
    Engine &engine = *state_->engines[e];
    if (supplies[e].streaming) {
      written[e] = engine.leap(supplies[e], cycles);
    } else if (engine.inside) {
      engine.counters.stall_in += static_cast<uint32_t>(cycles);
    }
  }
  state_->cycles += cycles;
  return cycles;
}

bool Fabric::waves(const char *path) { return path == nullptr; }

}  // namespace tritforge
