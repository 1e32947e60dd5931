// Conversions between half types and float32, for reductions that are carried on in several steps
// and rounded in the last. Plain integers, which compilers turn into vectors; no step computes with
// a subnormal float32, as in impl_half_codecs.h.

#include <cstdint>
#include <cstring>

#include "mpistrat/simd.h"

namespace mpistrat {
namespace {

constexpr uint32_t kExponentOne = 1u << 23;          // an exponent's lowest bit
constexpr uint32_t kBiasShift = 112 * kExponentOne;  // between the biases of the two formats
constexpr uint32_t kSmallestNormal = 113u << 23;     // 2^-14, of float16
constexpr uint32_t kOverflow = 143u << 23;           // 2^16: infinity, in float16
constexpr uint32_t kInfinity = 255u << 23;

float as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

uint32_t as_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

struct Float16 {
  static uint32_t widened(uint16_t half) {
    const uint32_t magnitude = (half & 0x7fffu) << 13;
    const uint32_t special = magnitude >= (0x7c00u << 13) ? kBiasShift : 0;
    const uint32_t normal = magnitude + kBiasShift + special;
    // Give a subnormal an implicit leading 1, and subtract it again as a number.
    const uint32_t subnormal =
        as_bits(as_float(magnitude + kSmallestNormal) - as_float(kSmallestNormal));
    return (magnitude < kExponentOne ? subnormal : normal) | (half & 0x8000u) << 16;
  }

  static uint16_t narrowed(uint32_t bits) {
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint32_t odd = magnitude >> 13 & 1;
    const uint32_t normal = (magnitude - kBiasShift + 0xfff + odd) >> 13;
    // The sum with 0.5 has its last bit where a subnormal has it: the addition rounds.
    const bool is_small = magnitude < kSmallestNormal;
    const uint32_t subnormal = as_bits(as_float(is_small ? magnitude : 0) + 0.5f) - as_bits(0.5f);
    const uint32_t special = 0x7c00u + (magnitude > kInfinity ? 0x200u : 0);
    const uint32_t finite = is_small ? subnormal : normal;
    return static_cast<uint16_t>((magnitude >= kOverflow ? special : finite) |
                                 (bits >> 16 & 0x8000u));
  }
};

struct Bfloat16 {
  static uint32_t widened(uint16_t half) { return static_cast<uint32_t>(half) << 16; }

  // No NaN becomes a number: what is computed from bfloat16 has zeros in its lower half.
  static uint16_t narrowed(uint32_t bits) {
    return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
  }
};

template <class Format>
void widen(uint32_t* to, const uint16_t* from, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = Format::widened(from[i]);
}

template <class Format>
void narrow(uint16_t* to, const uint32_t* from, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = Format::narrowed(from[i]);
}

}  // namespace
}  // namespace mpistrat

extern "C" void mpistrat_widen(void* to, const void* from, size_t count, int dtype) {
  auto* wide = static_cast<uint32_t*>(to);
  const auto* halves = static_cast<const uint16_t*>(from);
  if (dtype == MPISTRAT_FLOAT16) mpistrat::widen<mpistrat::Float16>(wide, halves, count);
  if (dtype == MPISTRAT_BFLOAT16) mpistrat::widen<mpistrat::Bfloat16>(wide, halves, count);
}

extern "C" void mpistrat_narrow(void* to, const void* from, size_t count, int dtype) {
  auto* halves = static_cast<uint16_t*>(to);
  const auto* wide = static_cast<const uint32_t*>(from);
  if (dtype == MPISTRAT_FLOAT16) mpistrat::narrow<mpistrat::Float16>(halves, wide, count);
  if (dtype == MPISTRAT_BFLOAT16) mpistrat::narrow<mpistrat::Bfloat16>(halves, wide, count);
}
