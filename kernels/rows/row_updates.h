#ifndef MPISTRAT_ROWS_ROW_UPDATES_H_
#define MPISTRAT_ROWS_ROW_UPDATES_H_

// Replace rows of a table, or add to them. `Table` says how a row is written, so that others may
// read it meanwhile. It has
//   data(row)                    where a row is
//   row_bytes, num_rows
//   begin(row), end(row)         around all that is written to it
//   write(to, from, nbytes)      a piece of the row

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "../simd/kernel_table.h"
#include "mpistrat/rows.h"
#include "mpistrat/simd.h"
#include "prefetch.h"

namespace mpistrat {

constexpr size_t kPieceBytes = 4096;  // a sum on its way into the table, in the first-level cache

template <class Table>
void fetch_ahead(const Table& table, const int64_t* rows, int64_t i, int64_t count) {
  const int64_t ahead = i + kRowsAhead;
  if (ahead >= count) return;
  fetch<1>(ahead_of(table.data(0), loaded(rows, ahead), table.row_bytes), table.row_bytes);
}

template <class Table>
void put_rows(Table& table, const int64_t* rows, int64_t count, const char* values) {
  for (int64_t i = 0; i < count; ++i) {
    fetch_ahead(table, rows, i, count);
    const int64_t row = row_at(rows, i, table.num_rows);
    table.begin(row);
    table.write(table.data(row), values + static_cast<size_t>(i) * table.row_bytes,
                table.row_bytes);
    table.end(row);
  }
}

// Write the sum of `sources`, the first of which is the row itself.
template <class Table>
void write_sum(Table& table, ReduceKernel kernel, int64_t row, const Sources& sources) {
  alignas(kLineBytes) char piece[kPieceBytes];
  char* to = table.data(row);
  table.begin(row);
  for (size_t at = 0; at < sources.nbytes; at += kPieceBytes) {
    const size_t nbytes = std::min(kPieceBytes, sources.nbytes - at);
    kernel({piece}, sources, at, nbytes, 1);
    table.write(to + at, piece, nbytes);
  }
  table.end(row);
}

template <class Table>
void add_in_order(Table& table, ReduceKernel kernel, const int64_t* rows, int64_t count,
                  const char* values) {
  for (int64_t i = 0; i < count; ++i) {
    fetch_ahead(table, rows, i, count);
    const int64_t row = row_at(rows, i, table.num_rows);
    const char* from[] = {table.data(row), values + static_cast<size_t>(i) * table.row_bytes};
    write_sum(table, kernel, row, Sources{from, 2, table.row_bytes});
  }
}

// All that is added to a row at once, so that it is rounded once.
template <class Table>
void add_together(Table& table, ReduceKernel kernel, const int64_t* given, int64_t count,
                  const char* values) {
  std::vector<int64_t> order(static_cast<size_t>(count)), rows(order.size());
  for (int64_t i = 0; i < count; ++i) {
    order[static_cast<size_t>(i)] = i;
    rows[static_cast<size_t>(i)] = row_at(given, i, table.num_rows);  // no sort of what changes
  }
  // Positions break ties: the order in which they came, without a stable sort's memory.
  const auto row_of = [&rows](int64_t place) { return rows[static_cast<size_t>(place)]; };
  std::sort(order.begin(), order.end(), [&row_of](int64_t a, int64_t b) {
    return row_of(a) != row_of(b) ? row_of(a) < row_of(b) : a < b;
  });
  std::vector<const char*> from;
  from.reserve(order.size() + 1);  // no memory is asked for once something is written
  for (size_t begin = 0, end; begin < order.size(); begin = end) {
    const int64_t row = row_of(order[begin]);
    from.assign(1, table.data(row));
    for (end = begin; end < order.size() && row_of(order[end]) == row; ++end) {
      from.push_back(values + static_cast<size_t>(order[end]) * table.row_bytes);
    }
    const size_t ahead = end + static_cast<size_t>(kRowsAhead);
    if (ahead < order.size()) fetch<1>(table.data(row_of(order[ahead])), table.row_bytes);
    write_sum(table, kernel, row,
              Sources{from.data(), static_cast<int>(from.size()), table.row_bytes});
  }
}

// Add rows whose indices were checked.
template <class Table>
int64_t add_rows(Table& table, const int64_t* rows, int64_t count, const char* values, int dtype) {
  const size_t itemsize = mpistrat_itemsize(dtype);
  if (itemsize == 0 || table.row_bytes % itemsize != 0) return MPISTRAT_ROWS_NO_DTYPE;
  const ReduceKernel kernel = kernel_table().kernels[MPISTRAT_SUM][dtype];
  if (dtype != MPISTRAT_FLOAT16 && dtype != MPISTRAT_BFLOAT16) {
    add_in_order(table, kernel, rows, count, values);
    return MPISTRAT_ROWS_DONE;
  }
  try {
    add_together(table, kernel, rows, count, values);
  } catch (const std::bad_alloc&) {
    return MPISTRAT_ROWS_NO_MEMORY;
  }
  return MPISTRAT_ROWS_DONE;
}

}  // namespace mpistrat

#endif  // MPISTRAT_ROWS_ROW_UPDATES_H_
