// All-reduce of ranks whose GPUs read each other's memory, in one kernel: each rank copies its
// input into a slot that all can read, waits for all others, and reduces all slots into its own
// output.
//
// The kernels of all ranks must run at the same time, with all their blocks: every rank has a GPU
// of its own, and at most 36 blocks. Block b of a rank waits for block b of every other one only,
// as the blocks of one number copy and reduce the same part of the array.
//
// Each rank has two slots and takes them in turn, which saves a second meeting: a slot is filled
// again two rounds later, and a rank that has passed the meeting of the round between knows that
// the kernels of all others have left the earlier round.
#include "reductions.cuh"

namespace mpistrat {

constexpr u32 kSpins = 256;  // between two looks at the host's word, which is far away

// Each rank has a page of flags: the one for block b and rank r is number b * kMaxRanks + r. A flag
// holds the last round that its writer has reached.
struct OneShot {
  const void* input;
  void* output;       // may be the input
  void* slot;         // of this rank, for this round: number `rank` of `slots`
  Sources slots;      // of all ranks, for this round; at boundaries of 16 bytes
  Results flags;      // u32[36 * kMaxRanks] of each rank
  const u32* cancel;  // pinned memory: the host writes 1 to call the kernel off
  u32* missing;       // pinned memory: where a kernel that was called off names a missing rank + 1
  int rank, num_ranks;
  u32 round;  // counts up from 1 and may wrap; the same on all ranks
  u64 count;
};

template <>
struct BlockOf<OneShot> {
  static constexpr int kThreads = 512, kAtOnce = 1;
};

// Wait until this block of every rank has filled its part of the slot. Returns whether all have: a
// rank that died must not leave the others in a kernel that nobody can end.
MPISTRAT_DEVICE bool meet(const OneShot& call) {
  __shared__ u32 is_off;
  if (threadIdx.x == 0) is_off = 0;
  __syncthreads();  // the part of the slot that this block wrote comes before its flags
  const u32 place = blockIdx.x * kMaxRanks;
  const int peer = static_cast<int>(threadIdx.x);
  const bool has_peer = peer < call.num_ranks && peer != call.rank;
  if (has_peer) {
    store_release(static_cast<u32*>(call.flags.of[peer]) + place + call.rank, call.round);
    const u32* flag = static_cast<const u32*>(call.flags.of[call.rank]) + place + peer;
    // By the sign of the difference: rounds wrap, and a peer may be a round ahead.
    for (u32 spins = 1; static_cast<int>(load_acquire(flag) - call.round) < 0; ++spins) {
      if (spins % kSpins == 0 && load_acquire(call.cancel) != 0) {
        store_release(call.missing, static_cast<u32>(peer) + 1);
        atomicExch(&is_off, 1u);  // several threads may come here
        break;
      }
    }
  }
  __syncthreads();  // the peers' parts are there for all threads of the block, and so is `is_off`
  return is_off == 0;
}

// The part of the array that this block copies and reduces: whole packs, as even as that allows.
struct Part {
  u64 begin, end;
};

template <int N>
MPISTRAT_DEVICE Part part_of_block(u64 count) {
  const u64 packs = (count + N - 1) / N;
  const u64 each = (packs + gridDim.x - 1) / gridDim.x * N;
  const u64 begin = blockIdx.x * each < count ? blockIdx.x * each : count;
  return {begin, count - begin < each ? count : begin + each};
}

template <class T>
struct FillSlot {
  const T* from;
  T* to;

  template <int N>
  MPISTRAT_DEVICE void copy(u64 at) const {
    store_pack<N>(to, at, load_pack<N>(from, at));
  }
  MPISTRAT_DEVICE void element(u64 i) const { copy<1>(i); }
  MPISTRAT_DEVICE void pack(u64 i) const { copy<kPackOf<T>>(i); }
};

template <class Op, class T>
struct ReduceOut {
  typedef typename Reduction<Op, T>::Result Result;

  const Sources& slots;  // written while this kernel runs: never read as constants
  int num_ranks;
  Result* to;
  u64 begin;

  template <int N>
  MPISTRAT_DEVICE void reduce(u64 at) const {
    store_pack<N>(to, at, reduce_pack<Op, T, N>(slots, num_ranks, at));
  }
  MPISTRAT_DEVICE void element(u64 i) const { reduce<1>(begin + i); }
  MPISTRAT_DEVICE void pack(u64 i) const { reduce<PackOf<Op, T>::kCount>(begin + i); }
};

// Slots have boundaries at the block's first element; the user's array may have none there.
template <int N, class T>
MPISTRAT_DEVICE u64 head_of(const T* array, u64 count) {
  return reinterpret_cast<u64>(array) % Pack<T, N>::kAlignment == 0 ? 0 : count;
}

template <class Op, class T>
MPISTRAT_KERNEL one_shot(const OneShot& call) {
  typedef typename Reduction<Op, T>::Result Result;
  constexpr int kCopied = kPackOf<T>;
  constexpr int kReduced = PackOf<Op, T>::kCount;
  const Part part = part_of_block<kCopied>(call.count);
  const u64 count = part.end - part.begin;
  const T* input = static_cast<const T*>(call.input) + part.begin;
  const FillSlot<T> fill_slot{input, static_cast<T*>(call.slot) + part.begin};
  for_each_pack<kCopied>(count, head_of<kCopied>(input, count), threadIdx.x, blockDim.x, fill_slot);
  if (!meet(call)) return;
  Result* output = static_cast<Result*>(call.output);
  const u64 head = head_of<kReduced>(output + part.begin, count);
  const ReduceOut<Op, T> out{call.slots, call.num_ranks, output, part.begin};
  for_each_pack<kReduced>(count, head, threadIdx.x, blockDim.x, out);
}

}  // namespace mpistrat
