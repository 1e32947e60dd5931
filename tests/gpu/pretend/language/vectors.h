// float2, int4, uchar3, ...: structures with the alignment that GPUs ask for.
#pragma once
#include "threads/interface.h"

#define PRETEND_VECTORS(T, name, of2, of4)                           \
  struct name##1 { T x; };                                           \
  struct alignas(of2) name##2 { T x, y; };                           \
  struct name##3 { T x, y, z; };                                     \
  struct alignas(of4) name##4 { T x, y, z, w; };                     \
  inline name##1 make_##name##1(T x) { return {x}; }                 \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }         \
  inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
// uint3, the type of threadIdx, is in threads/interface.h.
struct uint1 {
  unsigned x;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline uint1 make_uint1(unsigned x) { return {x}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
PRETEND_VECTORS(signed char, char, 2, 4)
PRETEND_VECTORS(unsigned char, uchar, 2, 4)
PRETEND_VECTORS(short, short, 4, 8)
PRETEND_VECTORS(unsigned short, ushort, 4, 8)
PRETEND_VECTORS(int, int, 8, 16)
PRETEND_VECTORS(long, long, 16, 16)
PRETEND_VECTORS(unsigned long, ulong, 16, 16)
PRETEND_VECTORS(long long, longlong, 16, 16)
PRETEND_VECTORS(unsigned long long, ulonglong, 16, 16)
PRETEND_VECTORS(float, float, 8, 16)
PRETEND_VECTORS(double, double, 16, 16)
#undef PRETEND_VECTORS
