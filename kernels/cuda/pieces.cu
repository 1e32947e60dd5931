// Move pieces of memory: pack many arrays into one, unpack them, and join arrays along any axis,
// each by one launch. Bytes are moved as they are, whatever their type and alignment.
#include "table.cuh"

namespace mpistrat {

// Rows of equal length at equal distances: an array that becomes part of one that is longer along
// an axis has as many rows as the axes before that have elements.
struct Piece {
  const u8* from;
  u8* to;
  u64 row_bytes, rows;
  u64 from_stride, to_stride;  // in bytes, from row to row

  MPISTRAT_DEVICE u64 size() const { return row_bytes * rows; }
};

constexpr int kAtOnce = 4;  // loads that are on their way before the first of them is stored

// Units of U, at boundaries of it, by the threads of a block.
template <class U>
MPISTRAT_DEVICE void copy_units(U* to, const U* from, u64 count) {
  const u64 step = blockDim.x;
  u64 i = threadIdx.x;
  MPISTRAT_NO_UNROLL
  for (; i + (kAtOnce - 1) * step < count; i += kAtOnce * step) {
    U units[kAtOnce];
    MPISTRAT_UNROLL
    for (int k = 0; k < kAtOnce; ++k) units[k] = from[i + k * step];
    MPISTRAT_UNROLL
    for (int k = 0; k < kAtOnce; ++k) store_word(to + i + k * step, units[k]);
  }
  MPISTRAT_NO_UNROLL
  for (; i < count; i += step) store_word(to + i, from[i]);
}

// Bytes whose addresses differ by a multiple of the unit: single ones up to the first boundary.
template <class U>
MPISTRAT_DEVICE void copy_as(u8* to, const u8* from, u64 nbytes) {
  u64 head = (sizeof(U) - reinterpret_cast<u64>(to) % sizeof(U)) % sizeof(U);
  if (head > nbytes) head = nbytes;
  const u64 units = (nbytes - head) / sizeof(U), tail = head + units * sizeof(U);
  copy_units(reinterpret_cast<U*>(to + head), reinterpret_cast<const U*>(from + head), units);
  MPISTRAT_NO_UNROLL
  for (u64 i = threadIdx.x; i < head; i += blockDim.x) to[i] = from[i];
  MPISTRAT_NO_UNROLL
  for (u64 i = tail + threadIdx.x; i < nbytes; i += blockDim.x) to[i] = from[i];
}

// Units of rows: number i of a piece is in row i / (units a row). A thread divides for its first
// unit, and for the way from one to the next; 64-bit divisions take long.
template <class U>
MPISTRAT_DEVICE void copy_rows(const Piece& piece, u64 begin, u64 end) {
  const u64 each = piece.row_bytes / sizeof(U), last = end / sizeof(U);
  const u64 more_rows = blockDim.x / each, more_columns = blockDim.x % each;
  u64 i = begin / sizeof(U) + threadIdx.x;
  u64 row = i / each, column = i % each;
  MPISTRAT_NO_UNROLL
  for (; i < last; i += blockDim.x) {
    const u8* from = piece.from + row * piece.from_stride;
    u8* to = piece.to + row * piece.to_stride;
    store_word(reinterpret_cast<U*>(to) + column, reinterpret_cast<const U*>(from)[column]);
    row += more_rows;
    column += more_columns;
    if (column >= each) {
      column -= each;
      ++row;
    }
  }
}

// By the widest unit, of at most 16 bytes, that fits all addresses and distances.
struct MovePiece {
  MPISTRAT_DEVICE void operator()(const Piece& piece, u64 begin, u64 end) const {
    if (piece.rows == 1) {
      move_bytes(piece.to + begin, piece.from + begin, end - begin);
    } else {
      move_rows(piece, begin, end);
    }
  }

  static MPISTRAT_DEVICE void move_bytes(u8* to, const u8* from, u64 nbytes) {
    const u64 apart = reinterpret_cast<u64>(to) - reinterpret_cast<u64>(from);
    if (apart % 16 == 0) return copy_as<Word<16>::type>(to, from, nbytes);
    if (apart % 8 == 0) return copy_as<Word<8>::type>(to, from, nbytes);
    if (apart % 4 == 0) return copy_as<Word<4>::type>(to, from, nbytes);
    if (apart % 2 == 0) return copy_as<Word<2>::type>(to, from, nbytes);
    copy_as<Word<1>::type>(to, from, nbytes);
  }

  static MPISTRAT_DEVICE void move_rows(const Piece& piece, u64 begin, u64 end) {
    const u64 all = reinterpret_cast<u64>(piece.from) | reinterpret_cast<u64>(piece.to) |
                    piece.row_bytes | piece.from_stride | piece.to_stride;
    if (all % 16 == 0) return copy_rows<Word<16>::type>(piece, begin, end);
    if (all % 8 == 0) return copy_rows<Word<8>::type>(piece, begin, end);
    if (all % 4 == 0) return copy_rows<Word<4>::type>(piece, begin, end);
    if (all % 2 == 0) return copy_rows<Word<2>::type>(piece, begin, end);
    copy_rows<Word<1>::type>(piece, begin, end);
  }
};

// The chunk is a multiple of 16 bytes.
MPISTRAT_KERNEL move_pieces(const Table<Piece>& table) { for_each_chunk(table, MovePiece{}); }

}  // namespace mpistrat
