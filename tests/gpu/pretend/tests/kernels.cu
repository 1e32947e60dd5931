// Kernels for test_threads.py: what the threads of a grid can do together, right and wrong.

extern "C" __global__ void __launch_bounds__(1024) number_threads(unsigned* out) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  out[block * threads + thread] += 1000 * block + thread;
}

// The sum of a block by static shared memory. FAULT leaves a barrier out.
extern "C" __global__ void block_sums(float* out, const float* in) {
  __shared__ float part[256];
  part[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
#ifndef NO_BARRIER
  __syncthreads();
#endif
  for (unsigned half = blockDim.x / 2; half; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}

// A block's threads pass values on in a ring, many times, between two barriers a round.
extern "C" __global__ void rotate(int* data, int rounds) {
  __shared__ int ring[64];
  int mine = data[threadIdx.x];
  for (int round = 0; round < rounds; ++round) {
    ring[threadIdx.x] = mine;
    __syncthreads();
    mine = ring[(threadIdx.x + 1) % blockDim.x];
#ifndef NO_SECOND_BARRIER
    __syncthreads();
#endif
  }
  data[threadIdx.x] = mine;
}

extern "C" __global__ void reverse_dynamic(int* data) {
  extern __shared__ int shared[];
  shared[threadIdx.x] = data[threadIdx.x];
  __syncthreads();
  data[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

extern "C" __global__ void read_shared(unsigned* out) {
  __shared__ unsigned left_by_others[32];
  out[blockIdx.x * blockDim.x + threadIdx.x] = left_by_others[threadIdx.x];
  left_by_others[threadIdx.x] = 7;
}

extern "C" __global__ void shuffles(int* down, int* up, int* mixed, int* from_first) {
  const pretend::Mask all = ~pretend::Mask{0};
  const int mine = threadIdx.x;
  down[mine] = __shfl_down_sync(all, mine, 1);
  up[mine] = __shfl_up_sync(all, mine, 2, 8);
  mixed[mine] = __shfl_xor_sync(all, mine, 5);
  from_first[mine] = __shfl(mine, 3);
}

extern "C" __global__ void votes(unsigned long long* ballot, int* counts) {
  ballot[threadIdx.x] = __ballot(threadIdx.x % 3 == 0);
  const int count = __syncthreads_count(threadIdx.x % 2);
  const int any = __syncthreads_or(threadIdx.x == 5), all = __syncthreads_and(threadIdx.x != 5);
  counts[threadIdx.x] = 100 * count + 10 * any + all;
}

// Half of a wavefront: AMD's shuffles without a mask are for the lanes that come.
extern "C" __global__ void half_shuffles(int* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_xor(static_cast<int>(threadIdx.x), 1);
  __syncthreads();
  if (threadIdx.x >= 16) out[threadIdx.x] = __popcll(__ballot(1));
}

// The lanes that were in the branch meet the others behind it.
extern "C" __global__ void shuffles_behind_a_branch(int* inside, int* behind) {
  const int mine = threadIdx.x;
  if (mine % 4 == 1) inside[mine] = __shfl(mine, 5);
  behind[mine] = __shfl(100 + mine, 6) + __popcll(__ballot(1));
}

// 1 + 2^-11 is half way to the next number: twice rounded it stays 1, once it does not.
extern "C" __global__ void halves(float* out) {
  const half one = 1, bit = 1.0f / 2048;
  half total = one;
  total += bit;
  total += bit;
  out[0] = one + bit + bit;
  out[1] = total;
  out[2] = static_cast<float>(one) + bit + bit;
  out[3] = one * half(3) / half(2) - half(4);
}

extern "C" __global__ void __launch_bounds__(2 * 16, 4) at_most_32(unsigned* out) {
  out[threadIdx.x] = 1;
}
template <int kMost>
__launch_bounds__(kMost) __global__ void at_most(unsigned* out) {
  out[threadIdx.x] = 1;
}

// Each block waits for the one after it: all must be resident.
extern "C" __global__ void chain(unsigned* flags, unsigned* data) {
  const unsigned me = blockIdx.x;
  if (threadIdx.x == 0) {
    if (me + 1 < gridDim.x) {
      while (__hip_atomic_load(&flags[me + 1], __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) == 0) {
      }
      data[me] = data[me + 1] + 1;
    }
#ifdef RELAXED_FLAG
    __hip_atomic_store(&flags[me], 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#else
    __hip_atomic_store(&flags[me], 1u, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
#endif
  }
}

// The same with all threads of all blocks there at once.
extern "C" __global__ void chain_of_barriers(unsigned* flags, unsigned* data) {
  __shared__ unsigned next;
  const unsigned me = blockIdx.x;
  if (threadIdx.x == 0 && me + 1 < gridDim.x) {
    while (__hip_atomic_load(&flags[me + 1], __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) == 0) {
    }
    next = data[me + 1];
  }
  const int count = __syncthreads_count(1);
  if (threadIdx.x == 0) {
    data[me] = me + 1 < gridDim.x ? next + count : 0;
    __hip_atomic_store(&flags[me], 1u, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
  }
}

// Waits in a way that does not show: it never gives way, so blocks need OS threads.
extern "C" __global__ void chain_by_volatile(volatile unsigned* flags) {
  while (blockIdx.x + 1 < gridDim.x && flags[blockIdx.x + 1] == 0) {
  }
  flags[blockIdx.x] = 1;
}

extern "C" __global__ void count(unsigned* counter, double* sum) {
  atomicAdd(counter, 1);
  atomicAdd(sum, 0.5);
}

extern "C" __global__ void take_turns(unsigned* lock, unsigned* data) {
  while (atomicCAS(lock, 0u, 1u) != 0) {
  }
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  *data += 1;
  __hip_atomic_store(lock, 0u, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
}

extern "C" __global__ void note_order(unsigned* next, unsigned* order) {
  order[atomicAdd(next, 1)] = threadIdx.x;
}

// ------------------------------------------------------------------------------- faults

extern "C" __global__ void two_barriers(int* out) {
  if (threadIdx.x < 3)
    __syncthreads();
  else
    __syncthreads();
  out[threadIdx.x] = 1;
}

extern "C" __global__ void outside_mask(int* out) {
  out[threadIdx.x] = __shfl_sync(static_cast<pretend::Mask>(0xff), 1, 0);
}

extern "C" __global__ void barrier_and_shuffle(int* out) {
  if (threadIdx.x == 7)
    __syncthreads();
  else
    out[threadIdx.x] = __shfl_sync(~pretend::Mask{0}, 1, 0);
}

__device__ __noinline__ int deep(int n, volatile int* out) {
  volatile int kept[256];
  kept[n & 255] = n;
  return n == 0 ? out[0] : deep(n - 1, out) + kept[n & 255];
}
extern "C" __global__ void overflow(int* out) {
  if (threadIdx.x == 2) out[0] = deep(1000000, out);
}

extern "C" __global__ void wild(unsigned long long address) {
  if (threadIdx.x == 5) *reinterpret_cast<int*>(address) = 1;
}

extern "C" __global__ void past_the_end(float* out, int n) {
  if (static_cast<int>(threadIdx.x) <= n) out[threadIdx.x] = 1;
}
