#ifndef MPISTRAT_ROWS_PREFETCH_H_
#define MPISTRAT_ROWS_PREFETCH_H_

// Prefetch rows before they are needed. A core waits for about 100 ns for a line of memory, but for
// many lines at once; and no processor foresees which rows of a table come next.

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace mpistrat {

constexpr int64_t kRowsAhead = 16;
constexpr size_t kBytesAhead = 512;  // of a row; the rest the processor foresees
constexpr size_t kLineBytes = 64;

template <int kIsWritten>
inline void fetch(const char* row, size_t row_bytes) {
  const size_t nbytes = std::min(row_bytes, kBytesAhead);
  for (size_t at = 0; at < nbytes; at += kLineBytes) __builtin_prefetch(row + at, kIsWritten);
}

// Memory that is only asked for, wherever it is: an index that another thread has changed by now
// (see row_at) costs nothing here.
inline const char* ahead_of(const void* first, int64_t index, size_t item_bytes) {
  const auto at = static_cast<uintptr_t>(index) * item_bytes;
  return reinterpret_cast<const char*>(reinterpret_cast<uintptr_t>(first) + at);
}

inline int64_t loaded(const int64_t* rows, int64_t i) {
  return __atomic_load_n(rows + i, __ATOMIC_RELAXED);
}

// The position of the first index that is not below `num_rows`, or -1.
inline int64_t first_wrong(const int64_t* rows, int64_t count, int64_t num_rows) {
  const auto limit = static_cast<uint64_t>(num_rows);
  for (int64_t i = 0; i < count; ++i) {
    if (static_cast<uint64_t>(loaded(rows, i)) >= limit) return i;
  }
  return -1;
}

// One of the indices that `first_wrong` has found right. Another thread may write to them since: it
// is loaded once, and what is no row any more is row 0, so that no other memory is ever touched.
inline int64_t row_at(const int64_t* rows, int64_t i, int64_t num_rows) {
  const int64_t row = loaded(rows, i);
  return static_cast<uint64_t>(row) < static_cast<uint64_t>(num_rows) ? row : 0;
}

}  // namespace mpistrat

#endif  // MPISTRAT_ROWS_PREFETCH_H_
