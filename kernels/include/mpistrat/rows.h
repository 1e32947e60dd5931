#ifndef MPISTRAT_ROWS_H_
#define MPISTRAT_ROWS_H_

// Some rows of a table: read, replaced, added to. Functions of their arguments alone, safe to call
// from many threads on different tables; all indices are checked before anything is written.
//
// If another thread writes to the indices meanwhile, some row of the table may be read or written
// in the place of another; no other memory is.
//
// What bounds them is the latency of memory: rows are fetched so many ahead that a core always has
// as many lines on their way as it can.

#include <stddef.h>
#include <stdint.h>

#include "mpistrat/types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum MpistratRowsResult {
  MPISTRAT_ROWS_DONE = -1,       // else the position of the first index that is no row
  MPISTRAT_ROWS_NO_MEMORY = -2,  // nothing was done
  MPISTRAT_ROWS_NO_DTYPE = -3,   // nothing was done: not a dtype, or no whole elements in a row
  MPISTRAT_ROWS_CHANGED = -6     // the indices were others when they were counted
};

// A table of `num_rows` rows of `row_bytes` bytes, one after the other.
typedef struct MpistratTable {
  void* data;
  int64_t num_rows;
  int64_t row_bytes;
} MpistratTable;

// The functions below return an MpistratRowsResult. `rows` are `count` indices from 0; `out` and
// `values` are `count` rows one after the other, which do not overlap the table.

// Copy rows out.
int64_t mpistrat_rows_take(const MpistratTable* table, const int64_t* rows, int64_t count,
                           void* out);

// Replace rows; of one that comes twice, the last counts.
int64_t mpistrat_rows_put(const MpistratTable* table, const int64_t* rows, int64_t count,
                          const void* values);

// Add to rows; to one that comes twice, twice, in order. Float16 and bfloat16 are accumulated as
// float32 and rounded once a row. Other arithmetic as in mpistrat/simd.h.
int64_t mpistrat_rows_add(const MpistratTable* table, const int64_t* rows, int64_t count,
                          const void* values, int dtype);

// A table whose rows are in `num_parts` parts, one after the other, and what goes to each of them.
// `starts` has the first row of each part, and after them the number of all rows.
typedef struct MpistratPieces {
  const int64_t* starts;
  int num_parts;
  const int64_t* counts;  // rows for which each piece has room, as mpistrat_rows_count found them
  int64_t* const* rows;   // counted from the part's first
  void* const* values;
} MpistratPieces;

// Count how many of `rows` are in each part.
int64_t mpistrat_rows_count(const int64_t* rows, int64_t count, const int64_t* starts,
                            int num_parts, int64_t* counts);

// Write each row, which was counted, to the piece of its part, in order; `values` as they are, or
// with a dtype their negatives (-1: none; truth values have none).
int64_t mpistrat_rows_split(const MpistratPieces* pieces, const int64_t* rows, int64_t count,
                            const void* values, int64_t row_bytes, int negated_dtype);

#ifdef __cplusplus
}
#endif

#endif  // MPISTRAT_ROWS_H_
