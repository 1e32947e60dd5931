// Read a store: copies of one version, or row by row; and leases, which need no copy.

#include <algorithm>

#include "../common/backoff.h"
#include "../rows/prefetch.h"
#include "atomic_copy.h"
#include "mpistrat/store.h"
#include "store_handle.h"

namespace mpistrat {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr auto kAcquire = std::memory_order_acquire;
constexpr int kAttempts = 2;

// A buffer as a reader finds it.
struct Source {
  const Layout& layout;
  const Mark* marks;
  const char* data;

  Source(const MpistratStore& store, int buffer)
      : layout(store.layout), marks(store.marks(buffer)), data(store.data(buffer)) {}
};

// Copy what is of a change up to `version`; returns false if it no longer was. Every word was
// acquired, so the mark is looked at after them: had one of them been of a later change, the mark,
// stored before it, would tell.
bool copy_of_version(char* out, const char* from, size_t nbytes, const Mark& mark,
                     uint64_t version) {
  load(out, from, nbytes);
  return mark.change.load(kRelaxed) <= version;
}

// Copy what nobody writes to meanwhile; returns false if somebody did.
bool copy_whole(char* out, const char* from, size_t nbytes, const Mark& mark) {
  const uint64_t sequence = mark.sequence.load(kAcquire);
  if (sequence % 2 != 0) return false;
  load(out, from, nbytes);
  return mark.sequence.load(kRelaxed) == sequence;
}

// What is copied: all blocks in their order, or some rows. `each(source, copy)` calls
// copy(out, from, nbytes, mark) for every part until one returns false.
struct AllBlocks {
  char* out;

  template <class Copy>
  bool each(const Source& source, size_t& done, Copy copy) const {
    const Layout& layout = source.layout;
    const size_t block = layout.row_bytes << layout.shift;
    for (; done < layout.num_blocks; ++done) {
      const size_t at = done * block, nbytes = std::min(block, layout.data_bytes - at);
      if (!copy(out + at, source.data + at, nbytes, source.marks[done])) return false;
    }
    return true;
  }
};

struct SomeRows {
  char* out;
  const int64_t* rows;
  size_t count;

  template <class Copy>
  bool each(const Source& source, size_t& done, Copy copy) const {
    // Kept here, since the compiler has to think that what is copied out may change them.
    const auto num_rows = static_cast<int64_t>(source.layout.num_rows);
    const size_t nbytes = source.layout.row_bytes, num = count;
    const int shift = source.layout.shift;
    const Mark* const marks = source.marks;
    const char* const data = source.data;
    const int64_t* const indices = rows;
    char* to = out + done * nbytes;
    for (size_t i = done; i < num; ++i, to += nbytes) {
      const size_t ahead = i + static_cast<size_t>(kRowsAhead);
      if (ahead < num) {
        const int64_t next = loaded(indices, static_cast<int64_t>(ahead));
        fetch<0>(ahead_of(data, next, nbytes), nbytes);
        __builtin_prefetch(ahead_of(marks, next >> shift, sizeof(Mark)));
      }
      const auto row = static_cast<size_t>(row_at(indices, static_cast<int64_t>(i), num_rows));
      if (!copy(to, data + row * nbytes, nbytes, marks[row >> shift])) {
        done = i;
        return false;
      }
    }
    done = num;
    return true;
  }
};

template <class Parts>
bool read_version(const MpistratStore& store, const Parts& parts) {
  const State state = store.state();
  size_t done = 0;
  return parts.each(Source(store, state.buffer), done,
                    [&](char* out, const char* from, size_t nbytes, const Mark& mark) {
                      return copy_of_version(out, from, nbytes, mark, state.version);
                    });
}

template <class Parts>
int64_t read_one_version(const MpistratStore& store, const Parts& parts, uint64_t budget_ns) {
  Backoff backoff(kStoreBackoff, budget_ns);
  bool has_time = true;
  for (int attempt = 0; attempt < kAttempts || has_time; ++attempt) {
    if (read_version(store, parts)) return MPISTRAT_ROWS_DONE;
    do {
      has_time = backoff.wait();
    } while (has_time && store.state().is_changing);
  }
  return MPISTRAT_STORE_BUSY;
}

// Goes on where it was, so that it ends however much is written.
template <class Parts>
int64_t read_each(const MpistratStore& store, const Parts& parts, uint64_t budget_ns) {
  Backoff backoff(kStoreBackoff, budget_ns);
  size_t done = 0;
  do {
    const Source source(store, store.state().buffer);
    if (parts.each(source, done, copy_whole)) return MPISTRAT_ROWS_DONE;
  } while (backoff.wait());
  return MPISTRAT_STORE_BUSY;
}

template <class Parts>
int64_t read(const MpistratStore& store, const Parts& parts, bool is_whole, uint64_t budget_ns) {
  return is_whole ? read_one_version(store, parts, budget_ns) : read_each(store, parts, budget_ns);
}

// Write a lease where there is none; returns its place or -1.
int take_lease(Header& header, uint64_t word) {
  for (int i = 0; i < MPISTRAT_STORE_LEASES; ++i) {
    uint64_t none = 0;
    if (header.leases[i].load(kRelaxed) == 0 &&
        header.leases[i].compare_exchange_strong(none, word)) {
      return i;
    }
  }
  return -1;
}

// Whether the owner is left a buffer to write to, with this one leased.
bool leaves_room(const MpistratStore& store) {
  return __builtin_popcountll(leased(*store.header())) <= store.layout.num_buffers - 2;
}

// Wait until the change in place that `found` tells of is over, which may have begun before its
// owner could see the lease. Any later one does: so whatever comes next, the data stay.
bool wait_for_change(const MpistratStore& store, const State& found, Backoff& backoff) {
  while (found.is_changing && store.header()->state.load() == found.word()) {
    if (!backoff.wait()) return false;
  }
  return true;
}

}  // namespace
}  // namespace mpistrat

using mpistrat::Backoff;
using mpistrat::kStoreBackoff;
using mpistrat::State;

int64_t mpistrat_store_read(const MpistratStore* store, void* out, int is_whole,
                            uint64_t budget_ns) {
  const mpistrat::AllBlocks parts = {static_cast<char*>(out)};
  return mpistrat::read(*store, parts, is_whole != 0, budget_ns);
}

int64_t mpistrat_store_take(const MpistratStore* store, const int64_t* rows, int64_t count,
                            void* out, int is_whole, uint64_t budget_ns) {
  const auto num_rows = static_cast<int64_t>(store->layout.num_rows);
  const int64_t wrong = mpistrat::first_wrong(rows, count, num_rows);
  if (wrong >= 0) return wrong;
  const mpistrat::SomeRows parts = {static_cast<char*>(out), rows, static_cast<size_t>(count)};
  return mpistrat::read(*store, parts, is_whole != 0, budget_ns);
}

// The lease is stored, then the state is loaded; the owner stores the state, then loads the leases,
// all sequentially consistent: one of the two sees the other.
int mpistrat_store_lease(const MpistratStore* store, uint64_t tag, uint64_t budget_ns, int* buffer,
                         uint64_t* version) {
  Backoff backoff(kStoreBackoff, budget_ns);
  do {
    *buffer = store->state().buffer;
    const int lease = mpistrat::take_lease(*store->header(), mpistrat::lease_word(tag, *buffer));
    if (lease < 0) return MPISTRAT_STORE_FULL;
    const State found = store->state();
    const bool is_current = found.buffer == *buffer, has_room = mpistrat::leaves_room(*store);
    if (is_current && has_room && mpistrat::wait_for_change(*store, found, backoff)) {
      *version = store->header()->versions[*buffer].load(std::memory_order_acquire);
      return lease;
    }
    mpistrat_store_release(store, lease);
    if (is_current && !has_room) return MPISTRAT_STORE_FULL;
  } while (backoff.wait());
  return MPISTRAT_STORE_BUSY;
}

// Release: what was read of the buffer was read before the owner writes to it.
void mpistrat_store_release(const MpistratStore* store, int lease) {
  store->header()->leases[lease].store(0, std::memory_order_release);
}
