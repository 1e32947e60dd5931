// The bits of numbers, and loads and stores that tell the cache what to expect.
#pragma once
#include <bit>

namespace pretend {

inline unsigned reversed(unsigned x) {
  unsigned result = 0;
  for (int i = 0; i < 32; ++i) result |= (x >> i & 1) << (31 - i);
  return result;
}

}  // namespace pretend

inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(unsigned x) { return std::countl_zero(x); }
inline int __clzll(unsigned long long x) { return std::countl_zero(x); }
inline int __ffs(unsigned x) { return __builtin_ffs(static_cast<int>(x)); }
inline int __ffsll(unsigned long long x) { return __builtin_ffsll(static_cast<long long>(x)); }
inline unsigned __brev(unsigned x) { return pretend::reversed(x); }
inline unsigned long long __brevll(unsigned long long x) {
  return static_cast<unsigned long long>(pretend::reversed(static_cast<unsigned>(x))) << 32 |
         pretend::reversed(static_cast<unsigned>(x >> 32));
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
inline int __mulhi(int a, int b) { return static_cast<int>(static_cast<long long>(a) * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline long long __mul64hi(long long a, long long b) {
  return static_cast<long long>(static_cast<__int128>(a) * b >> 64);
}

#define PRETEND_LOAD(name) \
  template <typename T>    \
  T name(const T* at) {    \
    return *at;            \
  }
PRETEND_LOAD(__ldg)
PRETEND_LOAD(__ldcg)
PRETEND_LOAD(__ldca)
PRETEND_LOAD(__ldcs)
#undef PRETEND_LOAD
#define PRETEND_STORE(name)          \
  template <typename T>              \
  void name(T* at, const T& value) { \
    *at = value;                     \
  }
PRETEND_STORE(__stcg)
PRETEND_STORE(__stcs)
PRETEND_STORE(__stwt)
#undef PRETEND_STORE
// Clang's, which hipRTC is. A vector of these moves as a whole on a GPU; here by elements.
#define __builtin_nontemporal_load(at) (*(at))
#define __builtin_nontemporal_store(value, at) (static_cast<void>(*(at) = (value)))
