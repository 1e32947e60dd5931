// bfloat16 with the names of AMD's header.
#pragma once
#include <bit>

#include "language/half.h"

struct __hip_bfloat16 {
  __hip_bfloat16() = default;
  __hip_bfloat16(float value) {  // to nearest, ties to even
    const auto bits = std::bit_cast<unsigned>(value);
    const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    const unsigned odd = bits >> 16 & 1;
    bits_ = static_cast<unsigned short>(nan ? bits >> 16 | 0x40 : (bits + 0x7fffu + odd) >> 16);
  }
  operator float() const { return std::bit_cast<float>(static_cast<unsigned>(bits_) << 16); }
  __hip_bfloat16& operator+=(__hip_bfloat16 by) { return *this = *this + by; }
  __hip_bfloat16& operator-=(__hip_bfloat16 by) { return *this = *this - by; }
  __hip_bfloat16& operator*=(__hip_bfloat16 by) { return *this = *this * by; }
  __hip_bfloat16& operator/=(__hip_bfloat16 by) { return *this = *this / by; }
  PRETEND_HALF(__hip_bfloat16, +)
  PRETEND_HALF(__hip_bfloat16, -)
  PRETEND_HALF(__hip_bfloat16, *)
  PRETEND_HALF(__hip_bfloat16, /)

 private:
  unsigned short bits_;
};

inline unsigned short __bfloat16_as_ushort(__hip_bfloat16 x) {
  return std::bit_cast<unsigned short>(x);
}
inline __hip_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
  return std::bit_cast<__hip_bfloat16>(bits);
}
inline float __bfloat162float(__hip_bfloat16 x) { return x; }
inline __hip_bfloat16 __float2bfloat16(float x) { return x; }
inline bool __hisnan(__hip_bfloat16 x) { return (__bfloat16_as_ushort(x) & 0x7fff) > 0x7f80; }
inline bool __hisinf(__hip_bfloat16 x) { return (__bfloat16_as_ushort(x) & 0x7fff) == 0x7f80; }
