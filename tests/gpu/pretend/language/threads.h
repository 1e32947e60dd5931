// Words of the language, where a thread is, and the barriers of a block.
#pragma once
#include <time.h>

#include "threads/interface.h"

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __managed__
#undef __forceinline__
#undef __noinline__
#undef __launch_bounds__
#ifdef PRETEND_MARKS  // compiler/ puts words of C++ there after preprocessing
#define __global__ PRETEND_KERNEL
#define __shared__ PRETEND_SHARED
#define __launch_bounds__(...) PRETEND_BOUNDS(__VA_ARGS__)
#else
#define __launch_bounds__(...)
#define __global__ __attribute__((visibility("default")))
#define __shared__ static thread_local  // a block runs on one OS thread
#endif
#define __device__ __attribute__((visibility("default")))
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __restrict__ __restrict

#define threadIdx (pretend::here->thread)
#define blockIdx (pretend::here->block)
#define blockDim (pretend::here->block_size)
#define gridDim (pretend::here->grid_size)
#define warpSize PRETEND_LANES

#define PRETEND_SITE pretend::Site::of_call()

#define HIP_DYNAMIC_SHARED(T, name) T* name = static_cast<T*>(pretend::dynamic_shared_memory())

inline void __syncthreads(pretend::Site site = PRETEND_SITE) { pretend::sync_block(site); }
inline int __syncthreads_count(int yes, pretend::Site site = PRETEND_SITE) {
  return pretend::sync_block_and_vote(pretend::Vote::kCount, yes != 0, site);
}
inline int __syncthreads_and(int yes, pretend::Site site = PRETEND_SITE) {
  return pretend::sync_block_and_vote(pretend::Vote::kAnd, yes != 0, site);
}
inline int __syncthreads_or(int yes, pretend::Site site = PRETEND_SITE) {
  return pretend::sync_block_and_vote(pretend::Vote::kOr, yes != 0, site);
}

// ThreadSanitizer does not know fences (and g++ says so): order what it watches by atomics with an
// order of their own.
#ifdef __SANITIZE_THREAD__
inline void __threadfence() {}
#else
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
#endif
inline void __threadfence_system() { __threadfence(); }
inline void __threadfence_block() { __threadfence(); }

inline long long clock64() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}
inline long long wall_clock64() { return clock64(); }
inline void __nanosleep(unsigned) { pretend::pause(); }
inline void __builtin_amdgcn_s_sleep(int) { pretend::pause(); }
