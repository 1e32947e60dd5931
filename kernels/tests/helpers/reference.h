#ifndef MPISTRAT_TESTS_HELPERS_REFERENCE_H_
#define MPISTRAT_TESTS_HELPERS_REFERENCE_H_

// Reductions of one element at a time, in the plainest C++, and what to reduce.

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "mpistrat/simd.h"

namespace mpistrat_test {

using Buffer = std::vector<char>;

// ------------------------------------------------------------------ the reference: one element
// A format loads a value and stores it rounded. Its part is what may be NaN by itself.

template <class T>
struct Plain {
  using Value = T;
  using Part = Plain;
  static constexpr size_t kBytes = sizeof(T);
  static Value load(const char* from) {
    Value value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  static void store(char* to, Value value) { std::memcpy(to, &value, sizeof value); }
};

template <class T>
struct Complex : Plain<std::complex<T>> {
  using Part = Plain<T>;
};

struct Truth {
  using Value = bool;
  using Part = Truth;
  static constexpr size_t kBytes = 1;
  static bool load(const char* from) { return *from != 0; }
  static void store(char* to, bool value) { *to = value ? 1 : 0; }
};

// 16-bit floats by arithmetic on their value, with no trick of the library's.
template <int kMantissa, int kBias>
struct Half {
  using Value = float;
  using Part = Half;
  static constexpr size_t kBytes = 2;
  static constexpr int kMaxExponent = (1 << (15 - kMantissa)) - 1;

  static float load(const char* from) {
    const uint16_t bits = Plain<uint16_t>::load(from);
    const int exponent = (bits >> kMantissa) & kMaxExponent;
    const int fraction = bits & ((1 << kMantissa) - 1);
    const float sign = (bits & 0x8000) != 0 ? -1.0f : 1.0f;
    if (exponent == kMaxExponent) return fraction != 0 ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * std::ldexp(float(fraction), 1 - kBias - kMantissa);
    return sign * std::ldexp(float(fraction + (1 << kMantissa)), exponent - kBias - kMantissa);
  }

  static void store(char* to, float value) {
    const int sign = std::signbit(value) ? 0x8000 : 0;
    Plain<uint16_t>::store(to, static_cast<uint16_t>(sign | magnitude(std::fabs(double{value}))));
  }

  static int magnitude(double value) {
    const int infinity = kMaxExponent << kMantissa;
    if (std::isnan(value)) return infinity + 1;
    if (std::isinf(value)) return infinity;
    if (value == 0) return 0;
    const int exponent = std::max(std::ilogb(value), 1 - kBias);
    // In units of the last bit; a carry out of the mantissa steps into the next exponent.
    const int units = static_cast<int>(std::nearbyint(std::ldexp(value, kMantissa - exponent)));
    return std::min(units + ((exponent + kBias - 1) << kMantissa), infinity);
  }
};

using Float16 = Half<10, 15>;
using Bfloat16 = Half<7, 127>;

// Call `check(format, dtype)` for every dtype, with a value of its format.
template <class Check>
void on_every_dtype(Check check) {
  check(Truth{}, MPISTRAT_BOOL);
  check(Plain<int8_t>{}, MPISTRAT_INT8);
  check(Plain<int16_t>{}, MPISTRAT_INT16);
  check(Plain<int32_t>{}, MPISTRAT_INT32);
  check(Plain<int64_t>{}, MPISTRAT_INT64);
  check(Plain<uint8_t>{}, MPISTRAT_UINT8);
  check(Plain<uint16_t>{}, MPISTRAT_UINT16);
  check(Plain<uint32_t>{}, MPISTRAT_UINT32);
  check(Plain<uint64_t>{}, MPISTRAT_UINT64);
  check(Float16{}, MPISTRAT_FLOAT16);
  check(Bfloat16{}, MPISTRAT_BFLOAT16);
  check(Plain<float>{}, MPISTRAT_FLOAT32);
  check(Plain<double>{}, MPISTRAT_FLOAT64);
  check(Complex<float>{}, MPISTRAT_COMPLEX64);
  check(Complex<double>{}, MPISTRAT_COMPLEX128);
}

template <class T>
T combine_integers(int op, T a, T b) {
  const uint64_t x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  switch (op) {
    case MPISTRAT_SUM:
      return static_cast<T>(x + y);
    case MPISTRAT_PROD:
      return static_cast<T>(x * y);
    case MPISTRAT_MIN:
      return std::min(a, b);
    case MPISTRAT_MAX:
      return std::max(a, b);
    case MPISTRAT_AND:
      return static_cast<T>(x & y);
    case MPISTRAT_OR:
      return static_cast<T>(x | y);
    default:
      return static_cast<T>(x ^ y);
  }
}

inline bool combine(int op, bool a, bool b) {
  if (op == MPISTRAT_XOR) return a != b;
  return op == MPISTRAT_SUM || op == MPISTRAT_MAX || op == MPISTRAT_OR ? a || b : a && b;
}

template <class T>
T combine_floats(int op, T a, T b) {
  if (op == MPISTRAT_SUM) return a + b;
  if (op == MPISTRAT_PROD) return a * b;
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
  return op == MPISTRAT_MIN ? std::min(a, b) : std::max(a, b);
}

template <class T>
std::complex<T> combine(int op, std::complex<T> a, std::complex<T> b) {
  if (op == MPISTRAT_SUM) return {a.real() + b.real(), a.imag() + b.imag()};
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

template <class T>
T combine(int op, T a, T b) {
  if constexpr (std::is_integral<T>::value) {
    return combine_integers(op, a, b);
  } else {
    return combine_floats(op, a, b);
  }
}

template <class T>
T finish(int op, T value, int64_t divisor) {
  if constexpr (std::is_floating_point<T>::value) {
    if (op == MPISTRAT_MIN || op == MPISTRAT_MAX) value += T(0);
    if (divisor > 1) value /= static_cast<T>(divisor);
  }
  return value;
}

template <class T>
std::complex<T> finish(int, std::complex<T> value, int64_t divisor) {
  const T number = static_cast<T>(divisor);
  return divisor > 1 ? std::complex<T>(value.real() / number, value.imag() / number) : value;
}

template <class Format>
Buffer reference(const std::vector<Buffer>& sources, size_t itemsize, int op, int64_t divisor) {
  Buffer result(sources[0].size());
  for (size_t at = 0; at < result.size(); at += itemsize) {
    typename Format::Value value = Format::load(&sources[0][at]);
    for (size_t k = 1; k < sources.size(); ++k) {
      value = combine(op, value, Format::load(&sources[k][at]));
    }
    Format::store(&result[at], finish(op, value, divisor));
  }
  return result;
}

// The same bits; of two NaN, whatever bits.
template <class Format>
bool same(const char* a, const char* b, size_t nbytes) {
  using Part = typename Format::Part;
  if (nbytes == 0 || std::memcmp(a, b, nbytes) == 0) return true;
  for (size_t at = 0; at < nbytes; at += Part::kBytes) {
    if (std::memcmp(a + at, b + at, Part::kBytes) == 0) continue;
    const auto x = Part::load(a + at), y = Part::load(b + at);
    if (x == x || y == y) return false;
  }
  return true;
}

// -------------------------------------------------------------------------------- the sources

// Random bits, with infinities, NaN and subnormals; but one in `every` elements, or parts of them,
// is of few whole numbers, for ties, zeros of both signs and equal values.
template <class Format>
Buffer random_source(std::mt19937& random, size_t count, size_t every = 2) {
  using Part = typename Format::Part;
  Buffer source(count * Format::kBytes);
  for (size_t at = 0; at < source.size(); at += sizeof(uint32_t)) {
    const auto bits = static_cast<uint32_t>(random());
    std::memcpy(&source[at], &bits, std::min(sizeof bits, source.size() - at));
  }
  for (size_t at = 0; at + Part::kBytes <= source.size(); at += every * Part::kBytes) {
    using Value = typename Part::Value;
    const int number = static_cast<int>(random() % 65) - 32;
    Part::store(&source[at], number == 0 ? -Value(0) : static_cast<Value>(number));
  }
  if (std::is_same<Format, Truth>::value) {
    for (char& byte : source) byte = "\0\1\2\xff"[random() % 4];
  }
  return source;
}

// Those of this processor that the library has.
inline std::vector<const char*> instruction_sets() {
  std::vector<const char*> names;
  for (const char* name : {"baseline", "neon", "avx2", "avx512"}) {
    if (mpistrat_simd_select(name)) names.push_back(name);
  }
  return names;
}

}  // namespace mpistrat_test

#endif  // MPISTRAT_TESTS_HELPERS_REFERENCE_H_
