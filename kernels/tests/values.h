#ifndef MPISTRAT_TESTS_VALUES_H_
#define MPISTRAT_TESTS_VALUES_H_

#include <cstdint>
#include <vector>

#include "mpistrat/calls.h"

namespace mpistrat_test {

using Values = std::vector<float>;

// `n` elements in `count` pieces, the last one with what is left over, and empty ones between them.
inline std::vector<MpistratPiece> cut(void* data, size_t n, size_t itemsize, int count) {
  std::vector<MpistratPiece> pieces;
  const size_t each = n / static_cast<size_t>(count);
  for (int i = 0; i < count; ++i) {
    const size_t begin = each * static_cast<size_t>(i);
    const size_t end = i + 1 == count ? n : begin + each;
    if (i > 0) pieces.push_back({nullptr, 0});
    pieces.push_back({static_cast<char*>(data) + begin * itemsize,
                      static_cast<int64_t>((end - begin) * itemsize)});
  }
  return pieces;
}

inline std::vector<MpistratPiece> cut(Values& values, int count) {
  return cut(values.data(), values.size(), sizeof(float), count);
}

}  // namespace mpistrat_test

#endif  // MPISTRAT_TESTS_VALUES_H_
