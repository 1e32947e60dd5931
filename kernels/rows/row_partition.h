#ifndef MPISTRAT_ROWS_ROW_PARTITION_H_
#define MPISTRAT_ROWS_ROW_PARTITION_H_

// A table's partition into consecutive parts: find the part that a row is in.

#include <algorithm>
#include <cstdint>

namespace mpistrat {

// `starts` has the first row of each of `num` parts, and after them the number of all rows.
struct RowPartition {
  const int64_t* starts;
  int num;

  int64_t num_rows() const { return starts[num]; }

  // The part of a row that is in one.
  int find(int64_t row) const {
    if (num > kFew) {
      return static_cast<int>(std::upper_bound(starts + 1, starts + num, row) - starts) - 1;
    }
    int part = 0;
    for (int i = 1; i < num; ++i) part += row >= starts[i];  // no branch to foresee wrongly
    return part;
  }

 private:
  static constexpr int kFew = 8;
};

}  // namespace mpistrat

#endif  // MPISTRAT_ROWS_ROW_PARTITION_H_
