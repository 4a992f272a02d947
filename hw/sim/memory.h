// The contiguous buffer as processor and logic see it: two copies with a cache between them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace tritforge {

class Memory {
 public:
  static constexpr uint64_t kLineBytes = 32;  // Cortex-A9, L1 and L2

  Memory(uint64_t base, uint64_t bytes, bool shadow);

  uint8_t *processor() { return processor_.get(); }
  uint64_t bytes() const { return bytes_; }

  // Processor → logic, visible after the next barrier; logic → processor, at once. Both widen to whole lines and
  // return the bytes that they moved.
  uint64_t clean(uint64_t offset, uint64_t bytes);
  uint64_t invalidate(uint64_t offset, uint64_t bytes);
  void barrier();

  // Does [address, address + bytes) lie in the buffer?
  bool holds(uint64_t address, uint64_t bytes) const {
    return address >= base_ && address - base_ <= bytes_ && bytes <= bytes_ - (address - base_);
  }
  // The logic's copy at a bus address that holds() has allowed.
  uint8_t *logic(uint64_t address) { return logic_ + (address - base_); }

 private:
  struct Free {
    void operator()(uint8_t *pointer) const;
  };
  using Buffer = std::unique_ptr<uint8_t[], Free>;
  struct Pending {
    uint64_t offset;
    uint64_t bytes;
    std::vector<uint8_t> lines;  // as they were when cleaned; empty: copied at the barrier
  };

  static Buffer allocate(uint64_t bytes);
  // The lines that a range touches, cut at the buffer's end; false when it has none.
  bool lines(uint64_t &offset, uint64_t &bytes) const;

  uint64_t base_;
  uint64_t bytes_;
  Buffer processor_;
  Buffer own_;      // the logic's copy; none when memory is coherent
  uint8_t *logic_;
  std::vector<Pending> pending_;
};

}  // namespace tritforge
