// Order indices of rows, so that equal ones follow one another and keep their order: what
// scatter_add.cu needs. Keys of 64 bits have the row above the position. They are ordered by one
// digit of the row after the other, from the lowest: up to 2048 by one block in one launch, more
// by a launch for each digit of 8 bits. There are atomics of counts only, whose order has no
// influence on the result.
//
// An index that is no row is told by `bad`. Its key stays in bounds here as any number does, and
// nobody may use the order then.
#include "row_keys.cuh"

namespace mpistrat {

// ---------------------------------------------------------------- few keys

// One block. What is missing in the tile has the highest digits, and stays at its end.
MPISTRAT_KERNEL order_few(const RowOrder& call) {
  __shared__ Tile tile;
  u64 keys[kKeysEach];
  if (threadIdx.x == 0) *call.bad = 0;
  __syncthreads();  // before any thread finds a bad index
  const u32 first = threadIdx.x * kKeysEach;
  MPISTRAT_UNROLL
  for (u32 i = 0; i < kKeysEach; ++i) {
    keys[i] = first + i < call.count ? make_key(call, first + i) : ~0ull;
  }
  MPISTRAT_NO_UNROLL
  for (u32 bit = 0; bit < call.bits; bit += kStepBits) order_step(tile, keys, call.shift + bit);
  MPISTRAT_UNROLL
  for (u32 i = 0; i < kKeysEach; i += 2) {
    if (first + i + 1 < call.count) {
      store_pack<2>(call.to, first + i, Pack<u64, 2>{{keys[i], keys[i + 1]}});
    } else if (first + i < call.count) {
      call.to[first + i] = keys[i];
    }
  }
}

// ---------------------------------------------------------------- many keys

// Make all keys, and count the digits of each pass. The passes read what is counted here: indices
// that somebody changes meanwhile lead to no place out of bounds.
MPISTRAT_KERNEL make_keys(const RowOrder& call) {
  __shared__ u32 counts[kMostPasses * kDigits];
  const u32 passes = (call.bits + kDigitBits - 1) / kDigitBits;
  for (u32 i = threadIdx.x; i < passes * kDigits; i += kBlock) counts[i] = 0;
  __syncthreads();  // before any digit is counted
  MPISTRAT_NO_UNROLL
  for (u64 at = grid_thread() * 2; at < call.count; at += grid_threads() * 2) {
    const bool is_pair = at + 1 < call.count;
    const u64 key = make_key(call, at), next = is_pair ? make_key(call, at + 1) : 0;
    if (is_pair) {
      store_pack<2>(call.to, at, Pack<u64, 2>{{key, next}});
    } else {
      call.to[at] = key;
    }
    MPISTRAT_NO_UNROLL
    for (u32 pass = 0; pass < passes; ++pass) {
      const u32 bit = call.shift + pass * kDigitBits;
      count_one(counts + pass * kDigits + digit_of(key, bit));
      if (is_pair) count_one(counts + pass * kDigits + digit_of(next, bit));
    }
  }
  __syncthreads();  // all digits of this block are counted
  for (u32 i = threadIdx.x; i < passes * kDigits; i += kBlock) {
    if (counts[i] != 0) add_to_count(call.counts + i, counts[i]);
  }
}

// Of a digit, what a tile tells those after it, above a count below 2^30.
constexpr u32 kPart = 1u << 30;   // the keys of this tile
constexpr u32 kTotal = 1u << 31;  // those of all tiles to this one
constexpr u32 kCount = kPart - 1;

// How many keys of the tiles before this one have a digit, of which it has `mine` itself. A tile
// waits only for such as have begun before, each of which tells its own count first: so this ends
// however few blocks run at a time.
MPISTRAT_DEVICE u32 count_before(const RowOrder& call, u32 tile, u32 digit, u32 mine) {
  u32* const state = call.states + static_cast<u64>(tile) * kDigits + digit;
  store_relaxed(state, (tile == 0 ? kTotal : kPart) | mine);
  u32 before = 0;
  for (u32 back = 1; back <= tile; ++back) {
    u32 seen = 0;
    while (seen == 0) seen = load_relaxed(state - static_cast<u64>(back) * kDigits);
    before += seen & kCount;
    if (seen >= kTotal) break;
  }
  if (tile != 0) store_relaxed(state, kTotal | (before + mine));
  return before;
}

// Where the keys of each digit begin and end in a tile that is ordered by it.
struct Runs {
  u32 begin[kDigits], end[kDigits];
};

MPISTRAT_DEVICE void find_runs(const Tile& tile, Runs& runs, u32 valid, u32 bit) {
  runs.begin[threadIdx.x] = runs.end[threadIdx.x] = 0;
  __syncthreads();  // no digit is there until it is found
  MPISTRAT_UNROLL
  for (u32 i = 0; i < kKeysEach; ++i) {
    const u32 at = threadIdx.x + i * kBlock;
    if (at >= valid) break;
    const u32 digit = digit_of(tile.keys[place(at)], bit);
    if (at == 0 || digit_of(tile.keys[place(at - 1)], bit) != digit) runs.begin[digit] = at;
    if (at + 1 == valid || digit_of(tile.keys[place(at + 1)], bit) != digit) {
      runs.end[digit] = at + 1;
    }
  }
  __syncthreads();  // the runs of all digits
}

MPISTRAT_DEVICE void load_keys(const RowOrder& call, u64 begin, u32 valid, u64 (&keys)[kKeysEach]) {
  const u32 first = threadIdx.x * kKeysEach;
  MPISTRAT_UNROLL
  for (u32 i = 0; i < kKeysEach; i += 2) {
    keys[i] = keys[i + 1] = ~0ull;  // what is missing stays at the end of the tile
    if (first + i + 1 < valid) {
      const Pack<u64, 2> pack = load_pack<2>(call.from, begin + first + i);
      keys[i] = pack.of[0];
      keys[i + 1] = pack.of[1];
    } else if (first + i < valid) {
      keys[i] = call.from[begin + first + i];
    }
  }
}

// One pass. A block has the tile whose number is how many have begun before it.
MPISTRAT_KERNEL order_digit(const RowOrder& call) {
  __shared__ Tile tile;
  __shared__ Runs runs;
  __shared__ u32 number;
  if (threadIdx.x == 0) number = count_one(call.ticket);
  __syncthreads();  // the tile's number
  const u64 begin = static_cast<u64>(number) * kTile;
  const u32 valid = call.count - begin < kTile ? static_cast<u32>(call.count - begin) : kTile;
  u64 keys[kKeysEach];
  load_keys(call, begin, valid, keys);
  order_step(tile, keys, call.bit);
  if (call.bit + kStepBits < 64) order_step(tile, keys, call.bit + kStepBits);
  find_runs(tile, runs, valid, call.bit);
  const u32 digit = threadIdx.x;
  const u32 mine = runs.end[digit] - runs.begin[digit];
  const u32 before = count_before(call, number, digit, mine);
  runs.begin[digit] = sum_before(tile, call.counts[digit]) + before - runs.begin[digit];
  __syncthreads();  // where the runs go, counted from the beginning of the tile
  MPISTRAT_UNROLL
  for (u32 i = 0; i < kKeysEach; ++i) {
    const u32 at = threadIdx.x + i * kBlock;
    if (at >= valid) break;
    const u64 key = tile.keys[place(at)];
    call.to[runs.begin[digit_of(key, call.bit)] + at] = key;
  }
}

}  // namespace mpistrat
