#ifndef MPISTRAT_TESTS_VALUES_H_
#define MPISTRAT_TESTS_VALUES_H_

#include <cstdint>
#include <vector>

#include "mpistrat/calls.h"

namespace mpistrat_test {

using Values = std::vector<float>;

// `values` in `count` pieces, the last one with what is left over.
inline std::vector<MpistratPiece> cut(Values& values, int count) {
  std::vector<MpistratPiece> pieces;
  const size_t n = values.size(), each = n / static_cast<size_t>(count);
  for (int i = 0; i < count; ++i) {
    const size_t begin = each * static_cast<size_t>(i);
    const size_t end = i + 1 == count ? n : begin + each;
    pieces.push_back({values.data() + begin, static_cast<int64_t>((end - begin) * sizeof(float))});
  }
  return pieces;
}

}  // namespace mpistrat_test

#endif  // MPISTRAT_TESTS_VALUES_H_
