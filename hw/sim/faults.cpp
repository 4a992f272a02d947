#include "faults.h"

#include <stdexcept>

namespace tritforge {

const char *const kEngineNames[4] = {"matvec0", "matvec1", "attention0", "attention1"};

namespace {

struct Name {
  const char *name;
  Fault fault;
};
constexpr Name kNames[] = {
    {"halt", Fault::kHalt},
    {"slave_error", Fault::kSlaveError},
    {"decode_error", Fault::kDecodeError},
    {"sg_error", Fault::kSgError},
    {"short_s2mm", Fault::kShortS2mm},
    {"never_idle", Fault::kNeverIdle},
    {"wrong_word", Fault::kWrongWord},
    {"wrong_input", Fault::kWrongInput},
    {"bad_header", Fault::kBadHeader},
    {"stale_content_id", Fault::kStaleContentId},
    {"wrong_clock", Fault::kWrongClock},
};

Fault fault_of(const std::string &name) {
  std::string known;
  for (const Name &entry : kNames) {
    if (name == entry.name) return entry.fault;
    known += std::string(known.empty() ? "" : ", ") + entry.name;
  }
  throw std::invalid_argument("fault '" + name + "' is not one of " + known);
}

int engine_of(const std::string &name) {
  for (int engine = 0; engine < 4; engine++) {
    if (name == kEngineNames[engine]) return engine;
  }
  throw std::invalid_argument("engine '" + name + "' is not one of matvec0, matvec1, attention0, attention1");
}

uint64_t number_of(const std::string &text) {
  if (text.empty() || text.size() > 9 || text.find_first_not_of("0123456789") != std::string::npos ||
      std::stoul(text) == 0) {
    throw std::invalid_argument("'" + text + "' is not the number of a transfer, counted from 1");
  }
  return std::stoul(text);
}

}  // namespace

void Faults::arm(const std::string &list) {
  std::vector<Armed> armed;
  size_t begin = 0;
  while (begin < list.size()) {
    size_t end = list.find(';', begin);
    if (end == std::string::npos) end = list.size();
    std::string item = list.substr(begin, end - begin);
    begin = end + 1;
    if (item.empty()) continue;
    Armed fault{Fault::kHalt, -1, 1, false, false};
    const size_t colon = item.find(':');
    if (colon != std::string::npos) {
      std::string number = item.substr(colon + 1);
      if (!number.empty() && number.back() == '+') {
        fault.repeats = true;
        number.pop_back();
      }
      fault.first = number_of(number);
      item.resize(colon);
    }
    const size_t at = item.find('@');
    if (at != std::string::npos) {
      fault.engine = engine_of(item.substr(at + 1));
      item.resize(at);
    }
    fault.fault = fault_of(item);
    armed.push_back(fault);
  }
  armed_ = armed;
  for (uint64_t &count : transfers_) count = 0;
}

bool Faults::hits(Fault fault, unsigned engine) {
  for (Armed &armed : armed_) {
    if (armed.fault != fault || armed.spent || transfers_[engine] < armed.first ||
        (armed.engine >= 0 && armed.engine != static_cast<int>(engine))) {
      continue;
    }
    armed.spent = !armed.repeats;
    return true;
  }
  return false;
}

bool Faults::always(Fault fault) const {
  for (const Armed &armed : armed_) {
    if (armed.fault == fault) return true;
  }
  return false;
}

}  // namespace tritforge
