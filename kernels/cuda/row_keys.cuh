// The call of the kernels of row_order.cu, and the keys that they order: the row above the
// position.
#pragma once
#include "block_order.cuh"

namespace mpistrat {

constexpr u32 kDigitBits = 8, kDigits = 256;
constexpr u32 kMostPasses = 8;
static_assert(kDigits == kBlock, "thread d counts digit d");

struct RowOrder {
  const void* indices;  // of order_few and make_keys
  const u64* from;      // keys, of order_digit
  u64* to;              // keys
  u32* counts;          // of all keys, by digit: of each pass (make_keys), of this one
  u32* states;          // of each tile, by digit, in this pass; zeros at first
  u32* ticket;          // how many blocks of this pass have begun; zero at first
  u32* bad;             // count - the first position whose index is no row; 0 if there is none
  u64 count, num_rows;  // fewer than 2^30 indices
  u32 shift;            // of the row in a key
  u32 bits;             // of a row
  u32 bit;              // of a key, where the digit of this pass begins
  int index_bytes;      // of an index; negative if it is of a signed type
};

// Sign-extended: what is negative becomes larger than any row.
MPISTRAT_DEVICE u64 load_index(const RowOrder& call, u64 i) {
  const void* all = call.indices;
  switch (call.index_bytes) {
    case -1:
      return static_cast<u64>(static_cast<long long>(static_cast<const signed char*>(all)[i]));
    case -2:
      return static_cast<u64>(static_cast<long long>(static_cast<const short*>(all)[i]));
    case -4:
      return static_cast<u64>(static_cast<long long>(static_cast<const int*>(all)[i]));
    case 1:
      return static_cast<const u8*>(all)[i];
    case 2:
      return static_cast<const u16*>(all)[i];
    case 4:
      return static_cast<const u32*>(all)[i];
    default:  // of 8 bytes, signed or not
      return static_cast<const u64*>(all)[i];
  }
}

MPISTRAT_DEVICE u64 make_key(const RowOrder& call, u64 i) {
  const u64 row = load_index(call, i);
  if (row >= call.num_rows) atomicMax(call.bad, static_cast<u32>(call.count - i));
  return row << call.shift | i;
}

MPISTRAT_DEVICE u32 digit_of(u64 key, u32 bit) { return static_cast<u32>(key >> bit) % kDigits; }

}  // namespace mpistrat
