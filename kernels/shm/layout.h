#ifndef MPISTRAT_SHM_LAYOUT_H_
#define MPISTRAT_SHM_LAYOUT_H_

// What lies where in the shared memory of a node. Every flag has one writer, and a cache line of
// its own: readers never slow each other down, and no lock is needed.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "mpistrat/shm.h"

namespace mpistrat {

constexpr size_t kCacheLine = 64;
constexpr size_t kPage = 4096;
constexpr int64_t kMaxChunk = 256 << 10;
constexpr uint64_t kSlots = 4, kResults = 2;

// A rank's line. The first word is the flag: whoever has read `sequence` (acquire) may read the
// rest, which was written before it (release).
struct alignas(kCacheLine) Line {
  std::atomic<int64_t> sequence;
  int64_t rest[MPISTRAT_HEAD_BYTES / 8 - 1];
  uint8_t payload[MPISTRAT_INLINE_BYTES];
};
static_assert(sizeof(Line) == MPISTRAT_LINE_BYTES, "a line is read as bytes");

// What one rank writes and the others read.
struct alignas(kCacheLine) Control {
  // By parity of the sequence: a rank writes line s + 2 only after all ranks have shown line
  // s + 1, and so have read line s.
  Line lines[2];
  // Steps of data that this rank has published, over all calls.
  alignas(kCacheLine) std::atomic<uint64_t> published;
};

// The bell of a node: who has waited for long sleeps on it, and who publishes rings it.
struct alignas(kCacheLine) Bell {
  std::atomic<uint32_t> sleepers;
  alignas(kCacheLine) std::atomic<uint32_t> rings;
};

// A rank's buffers, used in turn, step by step. Two of each would do: a rank writes those of step
// c + 2 only after all ranks have published step c + 1, and so have read those of step c. More
// slots are a little faster, since lines that were read long ago are cheaper to write again.
struct alignas(kPage) Buffers {
  uint8_t slots[kSlots][kMaxChunk];      // what this rank brings
  uint8_t results[kResults][kMaxChunk];  // what it has reduced for the others
};

struct Memory {
  Bell bell;
  // Then Control[size], then, on a page of their own, Buffers[size].

  Control* controls() { return reinterpret_cast<Control*>(this + 1); }
  Buffers* buffers(int size) {
    const auto end = reinterpret_cast<uintptr_t>(controls() + size);
    return reinterpret_cast<Buffers*>((end + kPage - 1) / kPage * kPage);
  }
  static size_t bytes(int size) {
    return sizeof(Memory) + size * sizeof(Control) + kPage + size * sizeof(Buffers);
  }
};

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_LAYOUT_H_
