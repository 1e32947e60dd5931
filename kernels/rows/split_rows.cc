// Split rows by the part of the table that they belong to, in one pass.

#include <cstring>
#include <new>
#include <vector>

#include "mpistrat/rows.h"
#include "mpistrat/simd.h"
#include "prefetch.h"
#include "row_partition.h"

namespace mpistrat {
namespace {

using CopyRow = void (*)(char* to, const char* from, size_t nbytes);

void copy_row(char* to, const char* from, size_t nbytes) { std::memcpy(to, from, nbytes); }

// Through unsigned numbers, whose wrap is defined; neither end need be aligned.
template <class Unit>
void negate_row(char* to, const char* from, size_t nbytes) {
  for (size_t at = 0; at < nbytes; at += sizeof(Unit)) {
    Unit unit;
    std::memcpy(&unit, from + at, sizeof unit);
    unit = static_cast<Unit>(Unit{0} - unit);
    std::memcpy(to + at, &unit, sizeof unit);
  }
}

template <class Unit>
void flip_row(char* to, const char* from, size_t nbytes) {
  constexpr Unit kSign = static_cast<Unit>(Unit{1} << (8 * sizeof(Unit) - 1));
  for (size_t at = 0; at < nbytes; at += sizeof(Unit)) {
    Unit unit;
    std::memcpy(&unit, from + at, sizeof unit);
    unit = static_cast<Unit>(unit ^ kSign);
    std::memcpy(to + at, &unit, sizeof unit);
  }
}

// What writes the negative of a row; null if there is none.
CopyRow negating(int dtype) {
  switch (dtype) {
    case MPISTRAT_INT8:
    case MPISTRAT_UINT8:
      return negate_row<uint8_t>;
    case MPISTRAT_INT16:
    case MPISTRAT_UINT16:
      return negate_row<uint16_t>;
    case MPISTRAT_INT32:
    case MPISTRAT_UINT32:
      return negate_row<uint32_t>;
    case MPISTRAT_INT64:
    case MPISTRAT_UINT64:
      return negate_row<uint64_t>;
    case MPISTRAT_FLOAT16:
    case MPISTRAT_BFLOAT16:
      return flip_row<uint16_t>;
    case MPISTRAT_FLOAT32:
    case MPISTRAT_COMPLEX64:
      return flip_row<uint32_t>;
    case MPISTRAT_FLOAT64:
    case MPISTRAT_COMPLEX128:
      return flip_row<uint64_t>;
    default:
      return nullptr;
  }
}

// Where the next row of a part goes.
struct Piece {
  int64_t start;
  int64_t *rows, *end;
  char* values;

  Piece(const MpistratPieces& pieces, int part)
      : start(pieces.starts[part]),
        rows(pieces.rows[part]),
        end(rows + pieces.counts[part]),
        values(static_cast<char*>(pieces.values[part])) {}
};

}  // namespace
}  // namespace mpistrat

using mpistrat::RowPartition;

int64_t mpistrat_rows_count(const int64_t* rows, int64_t count, const int64_t* starts,
                            int num_parts, int64_t* counts) {
  const RowPartition parts = {starts, num_parts};
  const int64_t wrong = mpistrat::first_wrong(rows, count, parts.num_rows());
  if (wrong >= 0) return wrong;
  for (int i = 0; i < num_parts; ++i) counts[i] = 0;
  for (int64_t i = 0; i < count; ++i) {
    ++counts[parts.find(mpistrat::row_at(rows, i, parts.num_rows()))];
  }
  return MPISTRAT_ROWS_DONE;
}

int64_t mpistrat_rows_split(const MpistratPieces* pieces, const int64_t* rows, int64_t count,
                            const void* values, int64_t row_bytes, int negated_dtype) {
  const size_t nbytes = static_cast<size_t>(row_bytes);
  mpistrat::CopyRow copy = mpistrat::copy_row;
  if (negated_dtype >= 0) {
    copy = mpistrat::negating(negated_dtype);
    if (!copy || nbytes % mpistrat_itemsize(negated_dtype) != 0) return MPISTRAT_ROWS_NO_DTYPE;
  }
  const RowPartition parts = {pieces->starts, pieces->num_parts};
  std::vector<mpistrat::Piece> all;
  try {
    for (int i = 0; i < parts.num; ++i) all.emplace_back(*pieces, i);
  } catch (const std::bad_alloc&) {
    return MPISTRAT_ROWS_NO_MEMORY;
  }
  const int64_t num_rows = parts.num_rows();
  const char* from = static_cast<const char*>(values);
  for (int64_t i = 0; i < count; ++i, from += nbytes) {
    const int64_t row = mpistrat::row_at(rows, i, num_rows);
    mpistrat::Piece& piece = all[static_cast<size_t>(parts.find(row))];
    if (piece.rows == piece.end) return MPISTRAT_ROWS_CHANGED;
    *piece.rows++ = row - piece.start;
    copy(piece.values, from, nbytes);
    piece.values += nbytes;
  }
  return MPISTRAT_ROWS_DONE;
}
