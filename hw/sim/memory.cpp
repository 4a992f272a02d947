#include "memory.h"

#include <cstdlib>
#include <cstring>
#include <new>

namespace tritforge {

namespace {
constexpr uint64_t kPageBytes = 4096;
// A longer clean keeps no copy of its own until the barrier: 141 MiB of weights would be held three times.
constexpr uint64_t kSnapshotBytes = 1 << 20;
}  // namespace

void Memory::Free::operator()(uint8_t *pointer) const { std::free(pointer); }

Memory::Buffer Memory::allocate(uint64_t bytes) {
  const uint64_t whole = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  auto *pointer = static_cast<uint8_t *>(std::aligned_alloc(kPageBytes, whole));
  if (pointer == nullptr) throw std::bad_alloc();
  std::memset(pointer, 0, whole);
  return Buffer(pointer);
}

Memory::Memory(uint64_t base, uint64_t bytes, bool shadow)
    : base_(base), bytes_(bytes), processor_(allocate(bytes)) {
  if (shadow) own_ = allocate(bytes);
  logic_ = shadow ? own_.get() : processor_.get();
}

bool Memory::lines(uint64_t &offset, uint64_t &bytes) const {
  if (bytes == 0 || offset >= bytes_) return false;
  uint64_t end = bytes > bytes_ - offset ? bytes_ : offset + bytes;
  end = (end + kLineBytes - 1) / kLineBytes * kLineBytes;
  offset = offset / kLineBytes * kLineBytes;
  bytes = (end < bytes_ ? end : bytes_) - offset;
  return true;
}

uint64_t Memory::clean(uint64_t offset, uint64_t bytes) {
  if (!lines(offset, bytes)) return 0;
  if (own_) {
    Pending pending{offset, bytes, {}};
    const uint8_t *from = processor_.get() + offset;
    if (bytes <= kSnapshotBytes) pending.lines.assign(from, from + bytes);
    pending_.push_back(std::move(pending));
  }
  return bytes;
}

void Memory::barrier() {
  for (const Pending &pending : pending_) {
    const uint8_t *from = pending.lines.empty() ? processor_.get() + pending.offset : pending.lines.data();
    std::memcpy(logic_ + pending.offset, from, pending.bytes);
  }
  pending_.clear();
}

uint64_t Memory::invalidate(uint64_t offset, uint64_t bytes) {
  if (!lines(offset, bytes)) return 0;
  if (own_) std::memcpy(processor_.get() + offset, logic_ + offset, bytes);
  return bytes;
}

}  // namespace tritforge
