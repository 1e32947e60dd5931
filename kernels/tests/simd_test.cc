// Every dtype, reduction and instruction set against one element at a time.

#include "mpistrat/simd.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "check.h"

namespace {

constexpr size_t kMaxCount = 4097;
constexpr size_t kCounts[] = {0, 1, 7, 63, 64, 65, 1000, kMaxCount};
constexpr int kNumSources[] = {1, 2, 3, 5, 8};
constexpr size_t kMargin = 128;
constexpr char kUntouched = 0x5a;

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

bool combine(int op, bool a, bool b) {
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
  if (std::memcmp(a, b, nbytes) == 0) return true;
  for (size_t at = 0; at < nbytes; at += Part::kBytes) {
    if (std::memcmp(a + at, b + at, Part::kBytes) == 0) continue;
    const auto x = Part::load(a + at), y = Part::load(b + at);
    if (x == x || y == y) return false;
  }
  return true;
}

// -------------------------------------------------------------------------------- the sources

// Every other element is random bits, with infinities, NaN and subnormals; the others are few
// numbers, for ties, zeros of both signs and equal values.
template <class Format>
Buffer random_source(std::mt19937& random, size_t count) {
  using Part = typename Format::Part;
  Buffer source(count * Format::kBytes);
  for (char& byte : source) byte = static_cast<char>(random());
  for (size_t at = 0; at + Part::kBytes <= source.size(); at += 2 * Part::kBytes) {
    using Value = typename Part::Value;
    const int number = static_cast<int>(random() % 65) - 32;
    Part::store(&source[at], number == 0 ? -Value(0) : static_cast<Value>(number));
  }
  if (std::is_same<Format, Truth>::value) {
    for (char& byte : source) byte = "\0\1\2\xff"[random() % 4];
  }
  return source;
}

std::vector<const char*> instruction_sets() {
  std::vector<const char*> names;
  for (const char* name : {"baseline", "neon", "avx2", "avx512"}) {
    if (mpistrat_simd_select(name)) names.push_back(name);
  }
  return names;
}

// ----------------------------------------------------------------------------------- the cases

struct Case {
  int dtype;
  int op;
  int64_t divisor;
  size_t count;
  size_t offset;  // of sources; destinations are one further each, in elements
  int stream;
};

// One destination, then three; all sources and destinations at odd places of their buffers.
template <class Format>
void check_case(const Case& c, const std::vector<Buffer>& sources, const Buffer& expected) {
  const size_t nbytes = c.count * Format::kBytes;
  std::vector<Buffer> shifted;
  std::vector<const void*> from;
  for (const Buffer& source : sources) {
    shifted.emplace_back(kMargin + nbytes);
    std::copy_n(source.data(), nbytes, shifted.back().data() + c.offset);
    from.push_back(shifted.back().data() + c.offset);
  }
  for (int num_destinations : {1, 3}) {
    std::vector<Buffer> results(num_destinations, Buffer(2 * kMargin + nbytes, kUntouched));
    std::vector<void*> to;
    for (Buffer& result : results) {
      to.push_back(&result[c.offset + to.size() * Format::kBytes + kMargin / 2]);
    }
    mpistrat_reduce(to.data(), num_destinations, from.data(), static_cast<int>(from.size()),
                    c.count, c.dtype, c.op, c.divisor, c.stream);
    for (int k = 0; k < num_destinations; ++k) {
      const char* result = static_cast<const char*>(to[k]);
      const char* end = results[k].data() + results[k].size();
      CHECK_AT((same<Format>(result, expected.data(), nbytes)),
               "%s: dtype %d op %d sources %zu count %zu offset %zu stream %d",
               mpistrat_simd_name(), c.dtype, c.op, from.size(), c.count, c.offset, c.stream);
      CHECK(std::count(static_cast<const char*>(results[k].data()), result, kUntouched) ==
            result - results[k].data());
      CHECK(std::count(result + nbytes, end, kUntouched) ==
            end - result - static_cast<ptrdiff_t>(nbytes));
    }
  }
}

// Each source in turn is also the destination, and then two of them at once.
template <class Format>
void check_in_place(const Case& c, const std::vector<Buffer>& sources, const Buffer& expected) {
  const size_t nbytes = c.count * Format::kBytes;
  for (size_t k = 0; k < sources.size(); ++k) {
    std::vector<Buffer> copies = sources;
    std::vector<const void*> from;
    for (const Buffer& copy : copies) from.push_back(copy.data());
    void* to[] = {copies[k].data(), copies.back().data()};
    const int num_destinations = k + 1 < sources.size() ? 2 : 1;
    mpistrat_reduce(to, num_destinations, from.data(), static_cast<int>(from.size()), c.count,
                    c.dtype, c.op, c.divisor, c.stream);
    for (int i = 0; i < num_destinations; ++i) {
      CHECK((same<Format>(static_cast<const char*>(to[i]), expected.data(), nbytes)));
    }
  }
}

template <class Format>
void check_reduction(int dtype, int op, int64_t divisor) {
  std::mt19937 random(1000 * dtype + op);
  for (int num_sources : kNumSources) {
    std::vector<Buffer> sources;
    for (int k = 0; k < num_sources; ++k) {
      sources.push_back(random_source<Format>(random, kMaxCount));
    }
    const Buffer expected = reference<Format>(sources, Format::kBytes, op, divisor);
    for (const char* name : instruction_sets()) {
      CHECK(mpistrat_simd_select(name));
      for (int stream : {0, 1}) {
        for (size_t count : kCounts) {
          for (size_t offset : {Format::kBytes, size_t{3}}) {
            check_case<Format>({dtype, op, divisor, count, offset, stream}, sources, expected);
          }
        }
        check_in_place<Format>({dtype, op, divisor, kMaxCount, 0, stream}, sources, expected);
      }
    }
  }
}

template <class Format>
void check_dtype(int dtype) {
  CHECK(mpistrat_itemsize(dtype) == Format::kBytes);
  const bool is_floating = dtype >= MPISTRAT_FLOAT16;
  const bool is_complex = dtype >= MPISTRAT_COMPLEX64;
  for (int op = MPISTRAT_SUM; op <= MPISTRAT_XOR; ++op) {
    const bool is_arithmetic = op == MPISTRAT_SUM || op == MPISTRAT_PROD;
    const bool is_order = op == MPISTRAT_MIN || op == MPISTRAT_MAX;
    const bool has_meaning = is_arithmetic || (is_order ? !is_complex : !is_floating);
    CHECK(mpistrat_can_reduce(op, dtype) == has_meaning);
    if (has_meaning) check_reduction<Format>(dtype, op, 1);
  }
  if (!is_floating) return;
  check_reduction<Format>(dtype, MPISTRAT_SUM, 3);
  check_reduction<Format>(dtype, MPISTRAT_SUM, 8);
}

// Every number there is, with another one that takes all values too.
template <class Format>
void check_all_halves(int dtype) {
  std::vector<Buffer> sources(2, Buffer(2 << 16));
  for (uint32_t i = 0; i < 1 << 16; ++i) {
    Plain<uint16_t>::store(&sources[0][2 * i], static_cast<uint16_t>(i));
    Plain<uint16_t>::store(&sources[1][2 * i], static_cast<uint16_t>(i * 40503u + 12345u));
  }
  for (int num_sources : {2, 1}) {
    sources.resize(num_sources);
    for (int op : {MPISTRAT_SUM, MPISTRAT_PROD, MPISTRAT_MIN, MPISTRAT_MAX}) {
      const Buffer expected = reference<Format>(sources, 2, op, 1);
      for (const char* name : instruction_sets()) {
        CHECK(mpistrat_simd_select(name));
        check_case<Format>({dtype, op, 1, 1 << 16, 0, 0}, sources, expected);
      }
    }
  }
}

template <class T>
T reduce_two(int dtype, int op, T a, T b, int64_t divisor = 1) {
  T result{};
  void* to[] = {&result};
  const void* from[] = {&a, &b};
  mpistrat_reduce(to, 1, from, 2, 1, dtype, op, divisor, 0);
  return result;
}

// Numbers that can be checked by hand, in case the reference is as wrong as the library.
void check_known_values() {
  const auto half = [](int op, int a, int b, int64_t divisor = 1) {
    return int{reduce_two<uint16_t>(MPISTRAT_FLOAT16, op, static_cast<uint16_t>(a),
                                    static_cast<uint16_t>(b), divisor)};
  };
  const auto bfloat = [](int op, int a, int b) {
    return int{reduce_two<uint16_t>(MPISTRAT_BFLOAT16, op, static_cast<uint16_t>(a),
                                    static_cast<uint16_t>(b))};
  };
  for (const char* name : instruction_sets()) {
    CHECK(mpistrat_simd_select(name));
    CHECK(std::strcmp(mpistrat_simd_name(), name) == 0);
    CHECK(half(MPISTRAT_SUM, 0x6800, 0x3c00) == 0x6800);     // 2048 + 1: a tie, to even
    CHECK(half(MPISTRAT_SUM, 0x6800, 0x4200) == 0x6802);     // 2048 + 3: a tie, to even
    CHECK(half(MPISTRAT_SUM, 0x7bff, 0x4bff) == 0x7bff);     // 65504 + 15.99
    CHECK(half(MPISTRAT_SUM, 0x7bff, 0x4c00) == 0x7c00);     // 65504 + 16: infinity
    CHECK(half(MPISTRAT_SUM, 0x0001, 0x0000, 2) == 0x0000);  // half the smallest: a tie, to even
    CHECK(half(MPISTRAT_SUM, 0x7bff, 0x7bff, 2) == 0x7bff);  // only the float32 is divided
    CHECK(half(MPISTRAT_MIN, 0x8000, 0x3c00) == 0x0000);     // never -0.0
    CHECK(bfloat(MPISTRAT_SUM, 0x4380, 0x3f80) == 0x4380);   // 256 + 1: a tie, to even
    CHECK(bfloat(MPISTRAT_SUM, 0x4380, 0x4040) == 0x4382);   // 256 + 3: a tie, to even
    CHECK(bfloat(MPISTRAT_SUM, 0x7f7f, 0x7f7f) == 0x7f80);   // overflow: infinity
    CHECK((bfloat(MPISTRAT_SUM, 0x7f81, 0x3f80) & 0x7fff) > 0x7f80);  // NaN stays one
    CHECK((bfloat(MPISTRAT_MAX, 0x3f80, 0xffff) & 0x7fff) > 0x7f80);
    CHECK(!std::signbit(reduce_two(MPISTRAT_FLOAT32, MPISTRAT_MAX, -0.0f, -0.0f)));
    CHECK(std::isnan(reduce_two(MPISTRAT_FLOAT64, MPISTRAT_MIN, 1.0, double{NAN})));
    CHECK(reduce_two<uint8_t>(MPISTRAT_BOOL, MPISTRAT_SUM, 2, 255) == 1);
    CHECK(reduce_two<uint8_t>(MPISTRAT_BOOL, MPISTRAT_AND, 2, 1) == 1);
    CHECK(reduce_two<uint8_t>(MPISTRAT_BOOL, MPISTRAT_XOR, 2, 1) == 0);
    CHECK(reduce_two<int8_t>(MPISTRAT_INT8, MPISTRAT_SUM, 127, 1) == -128);
  }
}

void check_copies() {
  std::mt19937 random(7);
  const Buffer source = random_source<Plain<uint8_t>>(random, 3 * kMaxCount);
  for (int stream : {0, 1}) {
    for (size_t nbytes : {0, 1, 63, 64, 65, 127, 4096, 10000}) {
      for (size_t offset : {0, 1, 16, 63}) {
        Buffer to(nbytes + 2 * kMargin, kUntouched);
        mpistrat_copy(&to[offset + 1], &source[offset], nbytes, stream);
        CHECK(std::memcmp(&to[offset + 1], &source[offset], nbytes) == 0);
        CHECK(to[offset] == kUntouched && to[offset + 1 + nbytes] == kUntouched);
      }
    }
  }
}

void check_refusals() {
  CHECK(mpistrat_itemsize(-1) == 0 && mpistrat_itemsize(15) == 0);
  CHECK(!mpistrat_can_reduce(-1, MPISTRAT_INT8) && !mpistrat_can_reduce(7, MPISTRAT_INT8));
  CHECK(!mpistrat_can_reduce(MPISTRAT_SUM, 15) && !mpistrat_can_reduce(MPISTRAT_SUM, -1));
  CHECK(!mpistrat_simd_select("no such set"));
}

}  // namespace

int main() {
  check_refusals();
  check_known_values();
  check_copies();
  check_dtype<Truth>(MPISTRAT_BOOL);
  check_dtype<Plain<int8_t>>(MPISTRAT_INT8);
  check_dtype<Plain<int16_t>>(MPISTRAT_INT16);
  check_dtype<Plain<int32_t>>(MPISTRAT_INT32);
  check_dtype<Plain<int64_t>>(MPISTRAT_INT64);
  check_dtype<Plain<uint8_t>>(MPISTRAT_UINT8);
  check_dtype<Plain<uint16_t>>(MPISTRAT_UINT16);
  check_dtype<Plain<uint32_t>>(MPISTRAT_UINT32);
  check_dtype<Plain<uint64_t>>(MPISTRAT_UINT64);
  check_dtype<Float16>(MPISTRAT_FLOAT16);
  check_dtype<Bfloat16>(MPISTRAT_BFLOAT16);
  check_dtype<Plain<float>>(MPISTRAT_FLOAT32);
  check_dtype<Plain<double>>(MPISTRAT_FLOAT64);
  check_dtype<Complex<float>>(MPISTRAT_COMPLEX64);
  check_dtype<Complex<double>>(MPISTRAT_COMPLEX128);
  check_all_halves<Float16>(MPISTRAT_FLOAT16);
  check_all_halves<Bfloat16>(MPISTRAT_BFLOAT16);
  for (const char* name : instruction_sets()) std::printf("%s agrees\n", name);
  return 0;
}
