// Order the keys that a block holds by four of their bits at a time, in its shared memory. Equal
// ones keep their order. A thread counts its own keys in a register: no lanes are named, and no
// atomics are needed.
#pragma once
#include "vectors.cuh"

namespace mpistrat {

constexpr u32 kBlock = 256;   // threads of a block, all of which come here
constexpr u32 kKeysEach = 8;  // of a thread, which follow one another
constexpr u32 kTile = kBlock * kKeysEach;
constexpr u32 kStepBits = 4, kStepDigits = 16;

// Keys are at place(i): with a gap behind those of each thread, its next ones are in other banks.
MPISTRAT_DEVICE u32 place(u32 i) { return i + i / kKeysEach; }

struct Tile {
  u64 keys[kTile + kBlock];
  u16 counts[kStepDigits * kBlock];  // of the first digit in each thread, then of the next one
  u32 sums[2][kBlock];
};

// The sum of `mine` over the threads before this one. Each step reads one half of `sums` and
// writes the other one: a barrier a step, which also lets the next call write the first half.
MPISTRAT_DEVICE u32 sum_before(Tile& tile, u32 mine) {
  const u32 thread = threadIdx.x;
  u32 sum = mine, half = 0;
  tile.sums[0][thread] = mine;
  __syncthreads();
  MPISTRAT_NO_UNROLL
  for (u32 step = 1; step < kBlock; step *= 2) {
    if (thread >= step) sum += tile.sums[half][thread - step];
    half = 1 - half;
    tile.sums[half][thread] = sum;
    __syncthreads();
  }
  return sum - mine;
}

// Replace each of the counts by the sum of all before it: where the keys begin that it counted.
MPISTRAT_DEVICE void begin_counts(Tile& tile) {
  u16* const mine = tile.counts + threadIdx.x * kStepDigits;
  u32 sum = 0;
  MPISTRAT_UNROLL
  for (u32 i = 0; i < kStepDigits; ++i) sum += mine[i];
  u32 before = sum_before(tile, sum);
  MPISTRAT_UNROLL
  for (u32 i = 0; i < kStepDigits; ++i) {
    const u32 count = mine[i];
    mine[i] = static_cast<u16>(before);
    before += count;
  }
}

// Order all keys of the tile by the bits from number `bit` on. Before and after, thread t has
// those from number t * kKeysEach on in `keys`; afterwards all are in the tile, too.
MPISTRAT_DEVICE void order_step(Tile& tile, u64 (&keys)[kKeysEach], u32 bit) {
  const u32 thread = threadIdx.x;
  u64 counts = 0;   // how many keys of this thread have each digit: up to 8, in 4 bits
  u32 earlier = 0;  // of each key, how many before it have the same digit
  MPISTRAT_UNROLL
  for (u32 i = 0; i < kKeysEach; ++i) {
    const u32 at = static_cast<u32>(keys[i] >> bit & 15) * 4;
    earlier |= static_cast<u32>(counts >> at & 15) << i * 4;
    counts += 1ull << at;
  }
  MPISTRAT_UNROLL
  for (u32 digit = 0; digit < kStepDigits; ++digit) {
    tile.counts[digit * kBlock + thread] = static_cast<u16>(counts >> digit * 4 & 15);
  }
  __syncthreads();  // the counts of all threads
  begin_counts(tile);
  __syncthreads();  // the places of all digits; and the last step's keys have been read
  MPISTRAT_UNROLL
  for (u32 i = 0; i < kKeysEach; ++i) {
    const u32 digit = static_cast<u32>(keys[i] >> bit & 15);
    const u32 to = tile.counts[digit * kBlock + thread] + (earlier >> i * 4 & 15);
    tile.keys[place(to)] = keys[i];
  }
  __syncthreads();  // the keys in order; and the counts have been read
  MPISTRAT_UNROLL
  for (u32 i = 0; i < kKeysEach; ++i) keys[i] = tile.keys[place(thread * kKeysEach + i)];
}

}  // namespace mpistrat
