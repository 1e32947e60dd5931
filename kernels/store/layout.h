#ifndef MPISTRAT_STORE_LAYOUT_H_
#define MPISTRAT_STORE_LAYOUT_H_

// The layout of a store's memory: the header, the marks of all buffers, the buffers' data.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "mpistrat/store.h"

namespace mpistrat {

constexpr uint64_t kMagic = 0x316572'6f747370;  // "pstore1"; another number for another layout
constexpr size_t kStoreLine = 64;
constexpr size_t kStorePage = 64 << 10;    // of any system
constexpr size_t kHugePage = 2 << 20;      // where large data begin, for those who have such pages
constexpr size_t kMostBlockBytes = 16384;  // of several rows; marks are a thousandth of the data

// Tells of a block of rows in one buffer which change wrote to it last, from before its first
// word; `sequence` is odd while one writes.
struct Mark {
  std::atomic<uint64_t> change;
  std::atomic<uint64_t> sequence;
};

struct Header {
  std::atomic<uint64_t> magic;
  MpistratStoreShape shape;
  // The version, the current buffer and whether that is being changed, in one word.
  alignas(kStoreLine) std::atomic<uint64_t> state;
  // What is in each buffer, once it was finished.
  alignas(kStoreLine) std::atomic<uint64_t> versions[MPISTRAT_STORE_MAX_BUFFERS];
  // A tag and a buffer each, or 0.
  alignas(kStoreLine) std::atomic<uint64_t> leases[MPISTRAT_STORE_LEASES];
};
static_assert(sizeof(Header) <= kStorePage, "the header has a page");
static_assert(std::atomic<uint64_t>::is_always_lock_free, "a lock would be of one process");

struct State {
  uint64_t version;
  int buffer;
  bool is_changing;  // in place

  static State of(uint64_t word) {
    return {word >> 8, static_cast<int>(word >> 1 & 0x7f), (word & 1) != 0};
  }
  uint64_t word() const { return version << 8 | static_cast<uint64_t>(buffer) << 1 | is_changing; }
};

constexpr size_t rounded_up(size_t nbytes, size_t unit) {
  return (nbytes + unit - 1) / unit * unit;
}

struct Layout {
  size_t num_rows, row_bytes;
  int num_buffers;
  int shift;  // a block has 2^shift rows
  size_t num_blocks, data_bytes, first_data, stride;

  explicit Layout(const MpistratStoreShape& shape)
      : num_rows(static_cast<size_t>(shape.num_rows)),
        row_bytes(static_cast<size_t>(shape.row_bytes)),
        num_buffers(shape.num_buffers),
        shift(0) {
    while (row_bytes << (shift + 1) <= kMostBlockBytes && shift < 20) ++shift;
    num_blocks = (num_rows + (size_t{1} << shift) - 1) >> shift;
    data_bytes = num_rows * row_bytes;
    const size_t page = data_bytes < kHugePage ? kStorePage : kHugePage;
    const size_t marks_bytes = static_cast<size_t>(num_buffers) * num_blocks * sizeof(Mark);
    first_data = rounded_up(kStorePage + marks_bytes, page);
    stride = rounded_up(data_bytes, page);
  }

  size_t data_start(int buffer) const { return first_data + static_cast<size_t>(buffer) * stride; }
};

}  // namespace mpistrat

#endif  // MPISTRAT_STORE_LAYOUT_H_
