#ifndef MPISTRAT_TESTS_HELPERS_VALUES_H_
#define MPISTRAT_TESTS_HELPERS_VALUES_H_

// Arrays that are cheap to make and to compare under sanitizers.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "mpistrat/calls.h"

namespace mpistrat_test {

using Values = std::vector<float>;

// Values whose making and comparing is not what sanitizers are for: they cost them one look at a
// range, and not one at each element.

// Append `count` values of which the first is `at(0)`, and those `period` apart are equal.
template <class T, class At>
void append(std::vector<T>& values, int64_t count, size_t period, At at) {
  const size_t begin = values.size(), n = static_cast<size_t>(count);
  values.resize(begin + n);
  T* first = values.data() + begin;
  size_t done = std::min(n, period);
  for (size_t i = 0; i < done; ++i) first[i] = static_cast<T>(at(static_cast<int64_t>(i)));
  for (size_t more; done < n; done += more) {
    more = std::min(done, n - done);
    std::memcpy(first + done, first, more * sizeof(T));
  }
}

// Whether all bits are equal.
template <class T>
bool is_same(const T* values, const std::vector<T>& others) {
  return others.empty() || std::memcmp(values, others.data(), others.size() * sizeof(T)) == 0;
}

template <class T>
bool is_same(const std::vector<T>& values, const std::vector<T>& others) {
  return values.size() == others.size() && is_same(values.data(), others);
}

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

#endif  // MPISTRAT_TESTS_HELPERS_VALUES_H_
