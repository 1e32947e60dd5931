// What hipRTC has built in, in terms of clang's: for compiling the kernels to AMD's machine code
// where there is clang and nothing of ROCm.
#pragma once

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))

namespace prelude {
struct Dimension {
  unsigned x;
};
}  // namespace prelude

#define threadIdx (prelude::Dimension{__builtin_amdgcn_workitem_id_x()})
#define blockIdx (prelude::Dimension{__builtin_amdgcn_workgroup_id_x()})
#define blockDim (prelude::Dimension{__builtin_amdgcn_workgroup_size_x()})
#define gridDim \
  (prelude::Dimension{__builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x()})

__device__ inline void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
__device__ inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
__device__ inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
__device__ inline unsigned atomicExch(unsigned* at, unsigned value) {
  return __hip_atomic_exchange(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
__device__ inline unsigned atomicMax(unsigned* at, unsigned value) {
  return __hip_atomic_fetch_max(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
// clang's name for the instruction that counts up to a limit and begins again.
__device__ inline unsigned atomicInc(unsigned* at, unsigned limit) {
  return __builtin_amdgcn_atomic_inc32(at, limit, __ATOMIC_RELAXED, "agent");
}
