// What differs between NVRTC (NVIDIA), hipRTC (AMD) and g++, with which tests run kernels on the
// host; they give it what hipRTC has built in. Everything else in this folder is plain CUDA C++
// that all three compile: no standard headers (NVRTC has none), no warp shuffles (AMD has 64
// lanes), no vendor types.
//
// Whoever compiles this says that products and sums are not to be fused (NVRTC: --fmad=false,
// g++: -ffp-contract=off): results then have the bits of the CPU side.
#pragma once

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define MPISTRAT_ON_NVIDIA 1
#elif defined(__clang__) && (defined(__HIP__) || defined(__HIPCC_RTC__))
#define MPISTRAT_ON_AMD 1
#pragma clang fp contract(off)
#endif

// An argument of a kernel that is indexed at run time: without this word NVIDIA's compiler copies
// it to the stack of every thread.
#if defined(MPISTRAT_ON_NVIDIA)
#define MPISTRAT_ARGUMENT __grid_constant__
#define MPISTRAT_COPY memcpy
#else
#define MPISTRAT_ARGUMENT
#define MPISTRAT_COPY __builtin_memcpy
#endif

#if defined(MPISTRAT_ON_NVIDIA) || defined(MPISTRAT_ON_AMD)
#define MPISTRAT_UNROLL _Pragma("unroll")
#define MPISTRAT_PRAGMA(TEXT) _Pragma(#TEXT)
#define MPISTRAT_UNROLL_BY(COUNT) MPISTRAT_PRAGMA(unroll COUNT)
#define MPISTRAT_NO_UNROLL _Pragma("unroll 1")  // where it makes nothing faster, but takes long
#else
#define MPISTRAT_UNROLL
#define MPISTRAT_UNROLL_BY(COUNT)
#define MPISTRAT_NO_UNROLL
#endif

#define MPISTRAT_DEVICE __device__ inline

// What a kernel does, as a function of its only argument: `const Call& call`.
#define MPISTRAT_KERNEL MPISTRAT_DEVICE void

// The kernel NAME, whose code is that of a function, or of an instance of its template. It has C
// linkage, so that a launch asks for it by a name that is known beforehand: CuPy never reads its
// cache of compiled kernels for AMD's GPUs where it has to find names of C++.
#define MPISTRAT_INSTANCE(NAME, ...)                                                      \
  extern "C" __global__ void __launch_bounds__(                                           \
      mpistrat::BlockOf<mpistrat::CallOf<decltype(&__VA_ARGS__)>::type>::kThreads,        \
      mpistrat::BlockOf<mpistrat::CallOf<decltype(&__VA_ARGS__)>::type>::kAtOnce)         \
      NAME(const MPISTRAT_ARGUMENT mpistrat::CallOf<decltype(&__VA_ARGS__)>::type call) { \
    __VA_ARGS__(call);                                                                    \
  }

namespace mpistrat {

template <class Function>
struct CallOf;
template <class Call>
struct CallOf<void (*)(const Call&)> {
  typedef Call type;
};

// The most threads of a block, and how many blocks a processor holds at least: two of 256 threads
// leave 128 registers a thread. Without the second number NVIDIA's compiler takes less, for more
// blocks, and uses the stack.
template <class Call>
struct BlockOf {
  static constexpr int kThreads = 256, kAtOnce = 2;
};

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// ---------------------------------------------------------------- one access to memory

// The type by which N bytes are loaded and stored at once.
template <int kBytes>
struct Word;
#if defined(MPISTRAT_ON_NVIDIA)
#define MPISTRAT_WORD(BYTES, NVIDIAS, PART) \
  template <>                               \
  struct Word<BYTES> {                      \
    typedef NVIDIAS type;                   \
  }
#else
#define MPISTRAT_WORD(BYTES, NVIDIAS, PART)                           \
  template <>                                                         \
  struct Word<BYTES> {                                                \
    typedef PART type __attribute__((vector_size(BYTES), may_alias)); \
  }
#endif
MPISTRAT_WORD(1, u8, u8);
MPISTRAT_WORD(2, u16, u16);
MPISTRAT_WORD(4, u32, u32);
MPISTRAT_WORD(8, uint2, u32);
MPISTRAT_WORD(16, uint4, u32);
#undef MPISTRAT_WORD

// In the machine's own words where NVIDIA's compiler would store the parts one by one.
template <class W>
MPISTRAT_DEVICE void store_word(W* to, W word) {
  *to = word;
}
#if defined(MPISTRAT_ON_NVIDIA)
template <>
MPISTRAT_DEVICE void store_word(uint2* to, uint2 word) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" : : "l"(to), "r"(word.x), "r"(word.y) : "memory");
}
template <>
MPISTRAT_DEVICE void store_word(uint4* to, uint4 word) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(to), "r"(word.x), "r"(word.y), "r"(word.z), "r"(word.w)
               : "memory");
}
#endif

// ---------------------------------------------------------------- numbers and their bits

#if defined(MPISTRAT_ON_NVIDIA) || defined(MPISTRAT_ON_AMD)
MPISTRAT_DEVICE u32 bits_of(float number) { return __float_as_uint(number); }
MPISTRAT_DEVICE float float_of(u32 bits) { return __uint_as_float(bits); }
#else
MPISTRAT_DEVICE u32 bits_of(float number) {
  u32 bits;
  MPISTRAT_COPY(&bits, &number, sizeof bits);
  return bits;
}
MPISTRAT_DEVICE float float_of(u32 bits) {
  float number;
  MPISTRAT_COPY(&number, &bits, sizeof number);
  return number;
}
#endif

// Rounded to nearest, as IEEE asks, whatever the compiler was told of fast mathematics.
#if defined(MPISTRAT_ON_NVIDIA)
MPISTRAT_DEVICE float square_root(float x) { return __fsqrt_rn(x); }
MPISTRAT_DEVICE double square_root(double x) { return __dsqrt_rn(x); }
#else
MPISTRAT_DEVICE float square_root(float x) { return __builtin_sqrtf(x); }
MPISTRAT_DEVICE double square_root(double x) { return __builtin_sqrt(x); }
#endif

// ---------------------------------------------------------------- flags between processes

// The scope is the system: a flag is written by another GPU, or by the host. What its writer wrote
// before, and all that its block wrote before a __syncthreads, is seen after the load.
MPISTRAT_DEVICE u32 load_acquire(const u32* flag) {
#if defined(MPISTRAT_ON_NVIDIA)
  u32 seen;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
  return seen;
#else
  return __hip_atomic_load(flag, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM);
#endif
}

MPISTRAT_DEVICE void store_release(u32* flag, u32 value) {
#if defined(MPISTRAT_ON_NVIDIA)
  asm volatile("st.release.sys.global.u32 [%0], %1;" : : "l"(flag), "r"(value) : "memory");
#else
  __hip_atomic_store(flag, value, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
#endif
}

// ---------------------------------------------------------------- counts of one GPU

// How often something was counted at `count` before, and count it once more. In shared memory or
// in the GPU's.
MPISTRAT_DEVICE u32 count_one(u32* count) { return atomicInc(count, ~0u); }

// In the GPU's memory. Counts only: a sum of floats would not have the same order in every run.
MPISTRAT_DEVICE void add_to_count(u32* count, u32 by) {
#if defined(MPISTRAT_ON_NVIDIA)
  asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" : : "l"(count), "r"(by) : "memory");
#else
  __hip_atomic_fetch_add(count, by, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#endif
}

// A word that blocks of one kernel tell each other, and nothing besides it: no order is needed.
MPISTRAT_DEVICE u32 load_relaxed(const u32* word) {
#if defined(MPISTRAT_ON_NVIDIA)
  u32 seen;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(word) : "memory");
  return seen;
#else
  return __hip_atomic_load(word, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#endif
}

MPISTRAT_DEVICE void store_relaxed(u32* word, u32 value) {
#if defined(MPISTRAT_ON_NVIDIA)
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" : : "l"(word), "r"(value) : "memory");
#else
  __hip_atomic_store(word, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#endif
}

}  // namespace mpistrat
