// One launch over a table of pieces of different sizes, such as hundreds of tensors. Pieces are cut
// into chunks of equal size, and each block takes chunks that follow one another.
#pragma once
#include "vectors.cuh"

namespace mpistrat {

// A few pieces travel in the arguments of the launch; more are copied to the GPU beforehand.
constexpr int kInlinePieces = 24;

template <class Piece>
struct Table {
  const Piece* pieces;     // null: those below
  const u64* first_chunk;  // of each piece, and the number of all chunks at the end
  u64 num_pieces;
  u64 chunk;  // in units of the pieces
  Piece few[kInlinePieces];
  u64 first_of_few[kInlinePieces + 1];
};

// Call body(piece, begin, end) for each chunk of this block: the part of the piece that it is.
// `Piece::size()` is the number of units in a piece, of which the last chunk may have fewer.
template <class Piece, class Body>
MPISTRAT_DEVICE void for_each_chunk(const Table<Piece>& table, const Body& body) {
  const Piece* pieces = table.pieces != nullptr ? table.pieces : table.few;
  const u64* first = table.pieces != nullptr ? table.first_chunk : table.first_of_few;
  const u64 chunks = first[table.num_pieces];
  const u64 each = chunks / gridDim.x, more = chunks % gridDim.x;  // the first blocks take one more
  const u64 block = blockIdx.x;
  u64 chunk = block * each + (block < more ? block : more);
  const u64 end_chunk = chunk + each + (block < more ? 1 : 0);
  if (chunk == end_chunk) return;
  // Bisection: first[low] <= chunk < first[high]. Of pieces without chunks, the last is not found.
  u64 low = 0, high = table.num_pieces;
  MPISTRAT_NO_UNROLL
  while (high - low > 1) {
    const u64 middle = low + (high - low) / 2;
    if (first[middle] <= chunk) {
      low = middle;
    } else {
      high = middle;
    }
  }
  MPISTRAT_NO_UNROLL
  for (; chunk < end_chunk; ++chunk) {
    MPISTRAT_NO_UNROLL
    while (first[low + 1] <= chunk) ++low;
    const Piece& piece = pieces[low];
    const u64 begin = (chunk - first[low]) * table.chunk, size = piece.size();
    body(piece, begin, size - begin < table.chunk ? size : begin + table.chunk);
  }
}

}  // namespace mpistrat
