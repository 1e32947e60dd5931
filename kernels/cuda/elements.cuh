// The types of elements, and what is computed with in their place: half types as float32, bytes of
// bools as 0 or 1, all others as they are.
#pragma once
#include "port.cuh"

namespace mpistrat {

struct Bool {
  u8 byte;  // anything but 0 is true
};

struct Half {  // IEEE's binary16
  u16 bits;
};

struct Bfloat16 {
  u16 bits;
};

template <class R>
struct alignas(2 * sizeof(R)) Complex {
  R real, imaginary;
};

// ---------------------------------------------------------------- the type to compute with

template <class T>
struct WideOf {
  typedef T type;
};
template <>
struct WideOf<Half> {
  typedef float type;
};
template <>
struct WideOf<Bfloat16> {
  typedef float type;
};
template <class T>
using Wide = typename WideOf<T>::type;

template <class T>
struct IsFloating {
  static constexpr bool value = false;
};
template <>
struct IsFloating<float> {
  static constexpr bool value = true;
};
template <>
struct IsFloating<double> {
  static constexpr bool value = true;
};

template <class T>
MPISTRAT_DEVICE T widen(T x) {
  return x;
}

MPISTRAT_DEVICE Bool widen(Bool x) { return Bool{static_cast<u8>(x.byte != 0)}; }

MPISTRAT_DEVICE float widen(Bfloat16 x) { return float_of(static_cast<u32>(x.bits) << 16); }

MPISTRAT_DEVICE float widen(Half x) {
#if defined(MPISTRAT_ON_NVIDIA)
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
  return wide;
#elif defined(MPISTRAT_ON_AMD)
  return static_cast<float>(__builtin_bit_cast(_Float16, x.bits));
#else
  const u32 sign = static_cast<u32>(x.bits & 0x8000u) << 16, magnitude = x.bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return float_of(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  // 2^-24 is the smallest subnormal number: a product with a power of two is exact.
  if (magnitude < 0x400u) {
    return float_of(sign | bits_of(static_cast<float>(magnitude) * 0x1p-24f));
  }
  return float_of(sign | ((magnitude << 13) + (112u << 23)));
#endif
}

// ---------------------------------------------------------------- rounding to nearest even

template <class T>
struct Narrow {
  static MPISTRAT_DEVICE T of(T x) { return x; }
};

template <>
struct Narrow<Bfloat16> {
  static MPISTRAT_DEVICE Bfloat16 of(float x) {
    const u32 bits = bits_of(x);
    // A NaN stays one, also where its highest bits alone would be infinity.
    if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<u16>(bits >> 16 | 0x40u)};
    return {static_cast<u16>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
  }
};

template <>
struct Narrow<Half> {
  static MPISTRAT_DEVICE Half of(float x) {
#if defined(MPISTRAT_ON_NVIDIA)
    Half half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half.bits) : "f"(x));
    return half;
#elif defined(MPISTRAT_ON_AMD)
    return {__builtin_bit_cast(u16, static_cast<_Float16>(x))};
#else
    const u32 bits = bits_of(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    u32 half;
    if (magnitude > 0x7f800000u) {
      half = 0x7e00u;
    } else if (magnitude >= (143u << 23)) {  // 2^16 and more
      half = 0x7c00u;
    } else if (magnitude < (113u << 23)) {  // below 2^-14: the sum has its last bit at 2^-24
      half = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
    } else {
      half = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    }
    return {static_cast<u16>(sign | half)};
#endif
  }
};

template <class T>
MPISTRAT_DEVICE T narrow(Wide<T> x) {
  return Narrow<T>::of(x);
}

}  // namespace mpistrat
