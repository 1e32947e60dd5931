#ifndef MPISTRAT_SHM_CHUNKS_H_
#define MPISTRAT_SHM_CHUNKS_H_

// Cut arrays in chunks, one a step, and chunks in slices, one a rank.

#include <algorithm>
#include <cstdint>

#include "../common/cache_line.h"

namespace mpistrat {

// Bytes of the `index`-th of pieces of `each` bytes that `total` is cut into; 0 past its end.
inline int64_t piece_bytes(int64_t total, int64_t each, int64_t index) {
  return std::clamp<int64_t>(total - index * each, 0, each);
}

inline int64_t num_pieces(int64_t total, int64_t each) { return (total + each - 1) / each; }

// Bytes [begin, end) of a chunk.
struct Slice {
  int64_t begin, end;
  int64_t nbytes() const { return end - begin; }
};

class Chunks {
 public:
  // Cut `nbytes` in chunks of `chunk_bytes`, the last of which may be shorter, for `size` ranks.
  Chunks(int64_t nbytes, int64_t chunk_bytes, int size)
      : nbytes_(nbytes),
        chunk_bytes_(chunk_bytes),
        count_(num_pieces(nbytes, chunk_bytes)),
        size_(size) {}

  int64_t count() const { return count_; }
  int64_t start(int64_t chunk) const { return chunk * chunk_bytes_; }
  int64_t nbytes(int64_t chunk) const { return piece_bytes(nbytes_, chunk_bytes_, chunk); }
  Slice whole(int64_t chunk) const { return {0, nbytes(chunk)}; }

  // Rank's slice: whole cache lines, so that no two ranks write to the same one.
  Slice slice(int64_t chunk, int rank) const {
    const int64_t total = nbytes(chunk);
    const int64_t lines = num_pieces(total, kCacheLine);
    const int64_t each = num_pieces(lines, size_) * static_cast<int64_t>(kCacheLine);
    return {std::min(rank * each, total), std::min((rank + 1) * each, total)};
  }

 private:
  int64_t nbytes_, chunk_bytes_, count_;
  int size_;
};

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_CHUNKS_H_
