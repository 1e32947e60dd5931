#ifndef MPISTRAT_COMMON_PIECES_H_
#define MPISTRAT_COMMON_PIECES_H_

// A list of ranges of memory, read and written as if it were one. Calls of lists hand over their
// arrays as they lie: packing them is the copy into the shared slot, and no pass of its own.

#include <algorithm>
#include <cstdint>

#include "mpistrat/shm.h"
#include "mpistrat/simd.h"

namespace mpistrat {

// Memory that lies in one piece.
struct Stretch {
  uint8_t* data;
  int64_t nbytes;
};

class Pieces {
 public:
  Pieces() = default;
  Pieces(const MpistratPiece* pieces, int count) : pieces_(pieces), count_(count) {}

  int64_t nbytes() const {
    int64_t total = 0;
    for (int i = 0; i < count_; ++i) total += pieces_[i].nbytes;
    return total;
  }

  // The address of `nbytes` from `offset` on if they lie in one piece, else null.
  uint8_t* contiguous(int64_t offset, int64_t nbytes) {
    seek(offset);
    const bool fits = at_ < count_ && offset + nbytes <= start_ + pieces_[at_].nbytes;
    return fits ? data(offset) : nullptr;
  }

  // What lies in one piece from `offset` on, which must be before the end.
  Stretch stretch(int64_t offset) {
    seek(offset);
    return {data(offset), start_ + pieces_[at_].nbytes - offset};
  }

  void copy_out(int64_t offset, void* destination, int64_t nbytes, bool stream = false) {
    auto* to = static_cast<uint8_t*>(destination);
    for_each(offset, nbytes, [&](uint8_t* piece, int64_t n) {
      mpistrat_copy(to, piece, static_cast<size_t>(n), stream);
      to += n;
    });
  }

  void copy_in(int64_t offset, const void* source, int64_t nbytes, bool stream) {
    const auto* from = static_cast<const uint8_t*>(source);
    for_each(offset, nbytes, [&](uint8_t* piece, int64_t n) {
      mpistrat_copy(piece, from, static_cast<size_t>(n), stream);
      from += n;
    });
  }

  // Call `function(data, nbytes)` for each stretch of `nbytes` from `offset` on.
  template <class Function>
  void for_each(int64_t offset, int64_t nbytes, Function function) {
    while (nbytes > 0) {
      seek(offset);
      const int64_t n = std::min(nbytes, start_ + pieces_[at_].nbytes - offset);
      function(data(offset), n);
      offset += n;
      nbytes -= n;
    }
  }

 private:
  uint8_t* data(int64_t offset) {
    return static_cast<uint8_t*>(pieces_[at_].data) + (offset - start_);
  }

  // Go to the piece that holds `offset`; calls go forward by chunks, so it is near the last one.
  void seek(int64_t offset) {
    while (at_ > 0 && offset < start_) start_ -= pieces_[--at_].nbytes;
    while (at_ < count_ && offset >= start_ + pieces_[at_].nbytes) start_ += pieces_[at_++].nbytes;
  }

  const MpistratPiece* pieces_ = nullptr;
  int count_ = 0;
  int at_ = 0;         // the piece that was used last
  int64_t start_ = 0;  // its offset
};

}  // namespace mpistrat

#endif  // MPISTRAT_COMMON_PIECES_H_
