// Faults to order, so that a driver's and a board's error handling can be seen to work.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tritforge {

enum class Fault {
  kHalt,
  kSlaveError,
  kDecodeError,
  kSgError,
  kShortS2mm,
  kNeverIdle,
  kWrongWord,
  kWrongInput,
  kBadHeader,
  kStaleContentId,
  kWrongClock,
};

// Names of the engines, in their order; used in fault lists and complaints.
extern const char *const kEngineNames[4];

class Faults {
 public:
  // Replaces what is armed; the syntax is in tritforge_rtl.h. Throws std::invalid_argument with the reason.
  void arm(const std::string &list);

  // A transfer of an engine begins: does this fault act on it?
  bool hits(Fault fault, unsigned engine);
  // Counts a transfer of an engine; to be called before hits().
  void transfer_begins(unsigned engine) { transfers_[engine]++; }
  // For the two that have no transfer.
  bool always(Fault fault) const;

 private:
  struct Armed {
    Fault fault;
    int engine;  // -1: any
    uint64_t first;
    bool repeats;
    bool spent;
  };
  std::vector<Armed> armed_;
  uint64_t transfers_[4] = {};
};

}  // namespace tritforge
