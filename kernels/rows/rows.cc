// Read, replace and add to rows of a table in private memory.

#include "mpistrat/rows.h"

#include <cstring>

#include "prefetch.h"
#include "row_updates.h"

namespace mpistrat {
namespace {

struct PrivateTable {
  char* first;
  size_t row_bytes;
  int64_t num_rows;

  explicit PrivateTable(const MpistratTable& table)
      : first(static_cast<char*>(table.data)),
        row_bytes(static_cast<size_t>(table.row_bytes)),
        num_rows(table.num_rows) {}

  char* data(int64_t row) const { return first + static_cast<size_t>(row) * row_bytes; }
  void begin(int64_t) const {}
  void end(int64_t) const {}
  void write(char* to, const char* from, size_t nbytes) const { std::memcpy(to, from, nbytes); }
};

// With a size that is known when this is compiled (or 0), a copy of a short row is no call.
template <size_t kBytes>
void take(const PrivateTable& table, const int64_t* rows, int64_t count, char* out) {
  const size_t nbytes = kBytes > 0 ? kBytes : table.row_bytes;
  for (int64_t i = 0; i < count; ++i, out += nbytes) {
    const int64_t ahead = i + kRowsAhead;
    if (ahead < count) fetch<0>(ahead_of(table.first, loaded(rows, ahead), nbytes), nbytes);
    std::memcpy(out, table.first + static_cast<size_t>(row_at(rows, i, table.num_rows)) * nbytes,
                nbytes);
  }
}

void take_any(const PrivateTable& table, const int64_t* rows, int64_t count, char* out) {
  if (table.row_bytes == 4) return take<4>(table, rows, count, out);
  if (table.row_bytes == 8) return take<8>(table, rows, count, out);
  take<0>(table, rows, count, out);
}

}  // namespace
}  // namespace mpistrat

using mpistrat::PrivateTable;

int64_t mpistrat_rows_take(const MpistratTable* table, const int64_t* rows, int64_t count,
                           void* out) {
  const int64_t wrong = mpistrat::first_wrong(rows, count, table->num_rows);
  if (wrong >= 0) return wrong;
  if (table->row_bytes > 0) {
    mpistrat::take_any(PrivateTable(*table), rows, count, static_cast<char*>(out));
  }
  return MPISTRAT_ROWS_DONE;
}

int64_t mpistrat_rows_put(const MpistratTable* table, const int64_t* rows, int64_t count,
                          const void* values) {
  const int64_t wrong = mpistrat::first_wrong(rows, count, table->num_rows);
  if (wrong >= 0) return wrong;
  PrivateTable all(*table);
  if (all.row_bytes > 0) mpistrat::put_rows(all, rows, count, static_cast<const char*>(values));
  return MPISTRAT_ROWS_DONE;
}

int64_t mpistrat_rows_add(const MpistratTable* table, const int64_t* rows, int64_t count,
                          const void* values, int dtype) {
  const int64_t wrong = mpistrat::first_wrong(rows, count, table->num_rows);
  if (wrong >= 0) return wrong;
  PrivateTable all(*table);
  return mpistrat::add_rows(all, rows, count, static_cast<const char*>(values), dtype);
}
