#ifndef MPISTRAT_SHM_LAYOUT_H_
#define MPISTRAT_SHM_LAYOUT_H_

// The layout of a node's shared memory. Every flag has one writer, and a cache line of its own:
// readers never slow each other down, and no lock is needed.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "../common/cache_line.h"
#include "../common/futex_wait.h"
#include "movement_choice.h"
#include "mpistrat/shm.h"

namespace mpistrat {

constexpr size_t kPage = 4096;
constexpr int64_t kMaxChunk = 256 << 10;
constexpr int64_t kRing = 2 << 20, kShortRing = 1 << 20;
constexpr int64_t kShortSlots = 4, kShortSlot = 2 << 10;
constexpr int64_t kAddressBytes = 128 << 10;

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

// A rank's buffers.
//
// What a rank writes in step c the others read in steps c and c + 1, and so until all have
// published step c + 2: three slots would do. But a line that another processor still has in its
// own cache is slow to write again. So slots follow each other around a ring that is longer than
// these caches are: lines leave them for the cache that the processors share. Measured on an AMD
// EPYC with 1 MiB of cache a processor, two ranks, us an all-reduce, by the bytes of all slots:
//
//              512 KiB  1 MiB  1.5 MiB  2 MiB  4 MiB
//    16 KiB        2.7    1.9      1.4    1.2    1.2
//    64 KiB       10.6    6.0      4.6    4.2    4.5
//   256 KiB       31.9   28.4     19.6   16.5   15.7
//     1 MiB      101.5   69.8             68.1   75.7
//
// Of arrays that wash these caches by themselves only half of the ring is used, which leaves more
// room in the shared one: 4 MiB in 450 us, and in 550 around all of it. So do more than two ranks,
// which nobody has measured yet. The shortest arrays gain nothing, and lose what the nearest cache
// is faster: 1 KiB in 0.43 us, and in 0.55 around the ring. They have four slots of their own.
struct alignas(kPage) Buffers {
  uint8_t ring[kRing];  // what this rank brings, and what it has reduced for the others
  uint8_t short_slots[kShortSlots][kShortSlot];
  uint8_t addresses[kAddressBytes];  // where its arrays are (address_exchange.h)
};
// The three slots, the last of which may begin where the end is too near for the longest one.
static_assert(kShortRing >= 4 * kMaxChunk && kRing >= kShortRing, "slots in use are not written");

struct Memory {
  NodeFutex futex;
  alignas(kCacheLine) MovementChoice::Decisions decisions;  // of rank 0
  // Then Control[size], then, on a page of their own, Buffers[size].

  Control* controls() { return reinterpret_cast<Control*>(this + 1); }
  Buffers* buffers(int size) {
    const auto end = reinterpret_cast<uintptr_t>(controls() + size);
    return reinterpret_cast<Buffers*>((end + kPage - 1) / kPage * kPage);
  }
  // As bytes: its ring, and then its short slots.
  uint8_t* buffers_of(int rank, int size) {
    static_assert(offsetof(Buffers, short_slots) == kRing, "SlotRing takes them for its end");
    return reinterpret_cast<uint8_t*>(buffers(size) + rank);
  }
  static size_t bytes(int size) {
    return sizeof(Memory) + size * sizeof(Control) + kPage + size * sizeof(Buffers);
  }
};

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_LAYOUT_H_
