// Change a store: the functions of its owner.

#include <new>

#include "../rows/row_updates.h"
#include "atomic_copy.h"
#include "mpistrat/store.h"
#include "store_handle.h"

namespace mpistrat {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr auto kRelease = std::memory_order_release;

// A buffer as rows are written to it. In place, the marks of a row's block are set around it; in
// another buffer, those of all blocks are already.
struct SharedTable {
  char* first;
  size_t row_bytes;
  int64_t num_rows;
  Mark* marks;
  int shift;
  uint64_t change;
  bool is_in_place;

  SharedTable(const MpistratStore& store, int buffer)
      : first(store.data(buffer)),
        row_bytes(store.layout.row_bytes),
        num_rows(static_cast<int64_t>(store.layout.num_rows)),
        marks(store.marks(buffer)),
        shift(store.layout.shift) {
    const State state = store.state();
    change = state.version + 1;
    is_in_place = state.buffer == buffer;
  }

  char* data(int64_t row) const { return first + static_cast<size_t>(row) * row_bytes; }

  void begin(int64_t row) const {
    if (!is_in_place) return;
    Mark& mark = marks[static_cast<size_t>(row) >> shift];
    // Before the words that are stored next: each of those is a release.
    mark.change.store(change, kRelaxed);
    mark.sequence.store(mark.sequence.load(kRelaxed) + 1, kRelaxed);
  }

  void end(int64_t row) const {
    if (!is_in_place) return;
    Mark& mark = marks[static_cast<size_t>(row) >> shift];
    mark.sequence.store(mark.sequence.load(kRelaxed) + 1, kRelease);  // after the row's words
  }

  void write(char* to, const char* from, size_t nbytes) const { store(to, from, nbytes); }
};

// Others than these functions may write to the buffer between this and the sequences' end, with
// plain stores (NumPy does): the fence orders the marks before those. A reader that still copies
// from there, where the current data were long ago, sees that they changed.
void order_before_plain_stores() {
#if !defined(__SANITIZE_THREAD__)
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace
}  // namespace mpistrat

using mpistrat::Header;
using mpistrat::Mark;
using mpistrat::SharedTable;
using mpistrat::State;

size_t mpistrat_store_bytes(const MpistratStoreShape* shape) {
  return mpistrat::Layout(*shape).data_start(shape->num_buffers);
}

void mpistrat_store_range(const MpistratStoreShape* shape, int buffer, size_t* start,
                          size_t* nbytes) {
  const mpistrat::Layout layout(*shape);
  const bool is_data = buffer >= 0;
  *start = is_data ? layout.data_start(buffer) : 0;
  *nbytes = is_data ? layout.data_bytes : layout.data_start(0);
}

MpistratStore* mpistrat_store_open(void* memory, const MpistratStoreShape* shape, int is_new) {
  auto* header = static_cast<Header*>(memory);
  if (shape->num_buffers < 3 || shape->num_buffers > MPISTRAT_STORE_MAX_BUFFERS) return nullptr;
  if (is_new) {
    header->shape = *shape;
    header->magic.store(mpistrat::kMagic, std::memory_order_release);
  }
  const MpistratStoreShape& found = header->shape;
  if (header->magic.load(std::memory_order_acquire) != mpistrat::kMagic ||
      found.num_rows != shape->num_rows || found.row_bytes != shape->row_bytes ||
      found.num_buffers != shape->num_buffers) {
    return nullptr;
  }
  return new (std::nothrow) MpistratStore{mpistrat::Layout(*shape), static_cast<char*>(memory)};
}

void mpistrat_store_close(MpistratStore* store) { delete store; }

uint64_t mpistrat_store_version(const MpistratStore* store) { return store->state().version; }

int mpistrat_store_current(const MpistratStore* store) { return store->state().buffer; }

void* mpistrat_store_data(const MpistratStore* store, int buffer) { return store->data(buffer); }

// -------------------------------------------------------------------------------------- leases

void mpistrat_store_tags(const MpistratStore* store, uint64_t tags[MPISTRAT_STORE_LEASES]) {
  for (int i = 0; i < MPISTRAT_STORE_LEASES; ++i) tags[i] = store->header()->leases[i].load() >> 8;
}

void mpistrat_store_drop(const MpistratStore* store, int lease, uint64_t tag) {
  auto& held = store->header()->leases[lease];
  uint64_t word = held.load();
  if (word >> 8 == tag) held.compare_exchange_strong(word, 0);
}

uint64_t mpistrat_store_leased(const MpistratStore* store) {
  return mpistrat::leased(*store->header());
}

// ------------------------------------------------------------------------------------- changes

int mpistrat_store_begin(MpistratStore* store) {
  State state = store->state();
  state.is_changing = true;
  store->header()->state.store(state.word());
  if ((mpistrat::leased(*store->header()) >> state.buffer & 1) == 0) return 1;
  mpistrat_store_cancel(store);
  return 0;
}

void mpistrat_store_cancel(MpistratStore* store) {
  State state = store->state();
  state.is_changing = false;
  store->header()->state.store(state.word());
}

void mpistrat_store_finish(MpistratStore* store) {
  const State state = store->state();
  const State next = {state.version + 1, state.buffer, false};
  store->header()->versions[state.buffer].store(next.version, mpistrat::kRelease);
  store->header()->state.store(next.word());
}

void mpistrat_store_begin_in(MpistratStore* store, int buffer) {
  const uint64_t change = store->state().version + 1;
  Mark* marks = store->marks(buffer);
  for (size_t i = 0; i < store->layout.num_blocks; ++i) {
    const uint64_t sequence = marks[i].sequence.load(mpistrat::kRelaxed);
    marks[i].change.store(change, mpistrat::kRelaxed);
    marks[i].sequence.store(sequence + 1 + sequence % 2,
                            mpistrat::kRelaxed);  // odd: also after no end
  }
  mpistrat::order_before_plain_stores();
}

void mpistrat_store_finish_in(MpistratStore* store, int buffer) {
  Mark* marks = store->marks(buffer);
  for (size_t i = 0; i < store->layout.num_blocks; ++i) {
    marks[i].sequence.store(marks[i].sequence.load(mpistrat::kRelaxed) + 1, mpistrat::kRelease);
  }
  const State next = {store->state().version + 1, buffer, false};
  store->header()->versions[buffer].store(next.version, mpistrat::kRelease);
  store->header()->state.store(next.word());
}

int64_t mpistrat_store_put(MpistratStore* store, int buffer, const int64_t* rows, int64_t count,
                           const void* values) {
  const int64_t wrong =
      mpistrat::first_wrong(rows, count, static_cast<int64_t>(store->layout.num_rows));
  if (wrong >= 0) return wrong;
  SharedTable table(*store, buffer);
  mpistrat::put_rows(table, rows, count, static_cast<const char*>(values));
  return MPISTRAT_ROWS_DONE;
}

int64_t mpistrat_store_add(MpistratStore* store, int buffer, const int64_t* rows, int64_t count,
                           const void* values, int dtype) {
  const int64_t wrong =
      mpistrat::first_wrong(rows, count, static_cast<int64_t>(store->layout.num_rows));
  if (wrong >= 0) return wrong;
  SharedTable table(*store, buffer);
  return mpistrat::add_rows(table, rows, count, static_cast<const char*>(values), dtype);
}

void mpistrat_store_fill(MpistratStore* store, int buffer, const void* values) {
  const void* from = values ? values : store->data(store->state().buffer);
  mpistrat::store(store->data(buffer), static_cast<const char*>(from), store->layout.data_bytes);
}

int64_t mpistrat_store_sum(MpistratStore* store, int buffer, const void* values, int dtype) {
  const size_t itemsize = mpistrat_itemsize(dtype), nbytes = store->layout.data_bytes;
  if (itemsize == 0 || nbytes % itemsize != 0) return MPISTRAT_ROWS_NO_DTYPE;
  const mpistrat::ReduceKernel kernel = mpistrat::kernel_table().kernels[MPISTRAT_SUM][dtype];
  const char* from[] = {store->data(store->state().buffer), static_cast<const char*>(values)};
  char* to = store->data(buffer);
  alignas(mpistrat::kStoreLine) char piece[mpistrat::kPieceBytes];
  for (size_t at = 0; at < nbytes; at += sizeof piece) {
    const size_t part = std::min(sizeof piece, nbytes - at);
    kernel({piece}, mpistrat::Sources{from, 2, nbytes}, at, part, 1);
    mpistrat::store(to + at, piece, part);
  }
  return MPISTRAT_ROWS_DONE;
}
