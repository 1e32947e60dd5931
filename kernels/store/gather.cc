// Gather rows of a table whose parts are in several stores, each straight to where it is wanted.

#include <new>
#include <vector>

#include "../common/backoff.h"
#include "../rows/prefetch.h"
#include "../rows/row_partition.h"
#include "atomic_copy.h"
#include "mpistrat/store.h"
#include "store_handle.h"

namespace mpistrat {
namespace {

constexpr int kAttempts = 2;

// A store's current buffer, as it was found.
struct Found {
  const char* data;
  const Mark* marks;
  uint64_t version;
  bool is_wanted;  // or copied already
  bool has_changed;

  void look(const MpistratStore& store) {
    const State state = store.state();
    data = store.data(state.buffer);
    marks = store.marks(state.buffer);
    version = state.version;
    has_changed = false;
  }
};

// Where a row is.
struct RowLocation {
  const char* data;
  const Mark* mark;
  Found* found;
};

class Gathering {
 public:
  Gathering(const MpistratStore* const* stores, const RowPartition& parts, const int64_t* rows,
            int64_t count, char* out)
      : stores_(stores),
        parts_(parts),
        rows_(rows),
        count_(count),
        num_rows_(parts.num_rows()),
        out_(out),
        shift_(stores[0]->layout.shift),
        row_bytes_(stores[0]->layout.row_bytes),
        found_(static_cast<size_t>(parts.num), Found{nullptr, nullptr, 0, true, false}) {}

  // Copy all rows of the stores from which there is none yet; returns false if one has changed.
  bool copy() {
    for (size_t i = 0; i < found_.size(); ++i) {
      if (found_[i].is_wanted) found_[i].look(*stores_[i]);
    }
    RowLocation ring[kRing];
    for (int64_t i = -kRowsAhead; i < count_; ++i) {
      const int64_t ahead = i + kRowsAhead;
      if (ahead < count_) ring[ahead % kRing] = location(row_at(rows_, ahead, num_rows_));
      if (i >= 0) copy_row(ring[i % kRing], out_ + static_cast<size_t>(i) * row_bytes_);
    }
    bool is_done = true;
    for (Found& found : found_) {
      found.is_wanted = found.is_wanted && found.has_changed;
      is_done = is_done && !found.is_wanted;
    }
    return is_done;
  }

  bool is_changing() const {
    for (size_t i = 0; i < found_.size(); ++i) {
      if (found_[i].is_wanted && stores_[i]->state().is_changing) return true;
    }
    return false;
  }

 private:
  static constexpr int64_t kRing = 2 * kRowsAhead;

  RowLocation location(int64_t row) {
    const int part = parts_.find(row);
    Found& found = found_[static_cast<size_t>(part)];
    const auto local = static_cast<size_t>(row - parts_.starts[part]);
    const RowLocation location = {found.data + local * row_bytes_, found.marks + (local >> shift_),
                                  &found};
    if (found.is_wanted) {
      fetch<0>(location.data, row_bytes_);
      __builtin_prefetch(location.mark);
    }
    return location;
  }

  // The words are acquired, so the mark is looked at after them (see read.cc).
  void copy_row(const RowLocation& location, char* out) const {
    if (!location.found->is_wanted) return;
    load(out, location.data, row_bytes_);
    const uint64_t change = location.mark->change.load(std::memory_order_relaxed);
    if (change > location.found->version) location.found->has_changed = true;
  }

  const MpistratStore* const* stores_;
  const RowPartition parts_;
  const int64_t* rows_;
  const int64_t count_, num_rows_;
  char* out_;
  const int shift_;
  const size_t row_bytes_;
  std::vector<Found> found_;
};

int64_t gather(Gathering& gathering, uint64_t budget_ns) {
  Backoff backoff(kStoreBackoff, budget_ns);
  bool has_time = true;
  for (int attempt = 0; attempt < kAttempts || has_time; ++attempt) {
    if (gathering.copy()) return MPISTRAT_ROWS_DONE;
    do {
      has_time = backoff.wait();
    } while (has_time && gathering.is_changing());
  }
  return MPISTRAT_STORE_BUSY;
}

}  // namespace
}  // namespace mpistrat

int64_t mpistrat_store_gather(const MpistratStore* const* stores, const int64_t* starts,
                              int num_stores, const int64_t* rows, int64_t count, void* out,
                              uint64_t budget_ns) {
  const mpistrat::RowPartition parts = {starts, num_stores};
  const int64_t wrong = mpistrat::first_wrong(rows, count, parts.num_rows());
  if (wrong >= 0) return wrong;
  try {
    mpistrat::Gathering gathering(stores, parts, rows, count, static_cast<char*>(out));
    return mpistrat::gather(gathering, budget_ns);
  } catch (const std::bad_alloc&) {
    return MPISTRAT_ROWS_NO_MEMORY;
  }
}
