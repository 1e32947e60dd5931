// float16 with the names of hip/hip_fp16.h. Arithmetic goes through float, which rounds alike.
#pragma once
#include <bit>
#include <concepts>
#include <type_traits>

#define PRETEND_HALF(T, op)                                   \
  template <std::same_as<T> A, std::same_as<T> B>             \
  friend T operator op(A a, B b) {                            \
    return T(static_cast<float>(a) op static_cast<float>(b)); \
  }

struct __half_raw {
  unsigned short x;
};

struct __half {
  __half() = default;
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
  __half(T value) : value_(static_cast<_Float16>(value)) {}
  __half(_Float16 value) : value_(value) {}
  __half(__half_raw raw) : value_(std::bit_cast<_Float16>(raw.x)) {}
  operator float() const { return static_cast<float>(value_); }
  operator __half_raw() const { return {std::bit_cast<unsigned short>(value_)}; }
  __half operator-() const { return __half(static_cast<_Float16>(-value_)); }
  __half& operator+=(__half by) { return *this = *this + by; }
  __half& operator-=(__half by) { return *this = *this - by; }
  __half& operator*=(__half by) { return *this = *this * by; }
  __half& operator/=(__half by) { return *this = *this / by; }
  // Of two halves the result is one: each step rounds. With a float it is a float.
  PRETEND_HALF(__half, +)
  PRETEND_HALF(__half, -)
  PRETEND_HALF(__half, *)
  PRETEND_HALF(__half, /)

 private:
  _Float16 value_;
};
using half = __half;

struct alignas(4) __half2 {
  __half x, y;
};
using half2 = __half2;

inline float __half2float(__half x) { return x; }
inline __half __float2half(float x) { return x; }
inline __half __float2half_rn(float x) { return x; }
inline __half __double2half(double x) { return x; }
inline unsigned short __half_as_ushort(__half x) { return static_cast<__half_raw>(x).x; }
inline __half __ushort_as_half(unsigned short x) { return __half_raw{x}; }
inline __half2 __floats2half2_rn(float x, float y) { return {x, y}; }
inline float __low2float(__half2 x) { return x.x; }
inline float __high2float(__half2 x) { return x.y; }
