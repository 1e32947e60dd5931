// Add rows to rows of a table. What is added to one row is added in the order in which it was
// given, by one thread for each column, in its own arithmetic (half types: as float32, rounded
// once): the same bits as on the CPU side, and in every run. There are no atomic additions. So a
// row to which very many are added keeps few threads busy: parts of its sum that are made beside
// one another would be another sum.
#include "reductions.cuh"

namespace mpistrat {

// Keys are in order. Each has the row of the table above the row of `values` that is added to it.
struct ScatterAdd {
  void* table;
  const void* values;
  const u64* keys;
  const u32* bad;  // not 0: an index is no row, and nothing may be added. Null: all are known to be
  u64 count, columns;
  u32 shift;  // of the row in a key

  MPISTRAT_DEVICE u64 row(u64 k) const { return keys[k] >> shift; }
  MPISTRAT_DEVICE u64 position(u64 k) const { return keys[k] & ((1ull << shift) - 1); }

  // The first key behind number `begin` that has another row: one look for rows that come once.
  MPISTRAT_DEVICE u64 end_of_row(u64 begin) const {
    const u64 mine = row(begin);
    u64 low = begin, step = 1;  // low has the row
    MPISTRAT_NO_UNROLL
    while (low + step < count && row(low + step) == mine) {
      low += step;
      step *= 2;
    }
    u64 high = low + step < count ? low + step : count;  // has not
    MPISTRAT_NO_UNROLL
    while (high - low > 1) {
      const u64 middle = low + (high - low) / 2;
      if (row(middle) == mine) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return high;
  }
};

template <class T>
struct AddToRow {
  typedef Reduction<Sum, T> Kind;
  typedef typename Kind::Accumulator Accumulator;

  const ScatterAdd& call;

  // N columns of the row whose first key is number `begin`.
  template <int N>
  MPISTRAT_DEVICE void add(u64 begin, u64 column) const {
    T* const row = static_cast<T*>(call.table) + call.row(begin) * call.columns;
    const T* const values = static_cast<const T*>(call.values);
    Accumulator totals[N];
    Pack<T, N> pack = load_pack<N>(static_cast<const T*>(row), column);
    MPISTRAT_UNROLL
    for (int i = 0; i < N; ++i) totals[i] = Kind::load(pack.of[i]);
    const u64 end = call.end_of_row(begin);
    MPISTRAT_UNROLL_BY(kArraysAtOnce<N>)
    for (u64 k = begin; k < end; ++k) {
      const Pack<T, N> next = load_pack<N>(values + call.position(k) * call.columns, column);
      MPISTRAT_UNROLL
      for (int i = 0; i < N; ++i) totals[i] = Sum::combine(totals[i], Kind::load(next.of[i]));
    }
    MPISTRAT_UNROLL
    for (int i = 0; i < N; ++i) pack.of[i] = Kind::finish(totals[i], 1);
    store_pack<N>(row, column, pack);
  }
};

template <int N, class T>
MPISTRAT_DEVICE void add_all(const ScatterAdd& call) {
  const u64 packs = call.columns / N;
  const AddToRow<T> body{call};
  for (u64 i = grid_thread(); i < call.count * packs; i += grid_threads()) {
    const u64 k = i / packs;
    if (k == 0 || call.row(k) != call.row(k - 1)) body.template add<N>(k, i % packs * N);
  }
}

template <class T>
MPISTRAT_KERNEL scatter_add(const ScatterAdd& call) {
  constexpr int kPack = kPackOf<T>;
  if (call.bad != nullptr && *call.bad != 0) return;
  const u64 addresses = reinterpret_cast<u64>(call.table) | reinterpret_cast<u64>(call.values);
  // Every row begins where packs do, or all columns are taken one by one.
  if (addresses % kAccessBytes == 0 && call.columns % kPack == 0) {
    add_all<kPack, T>(call);
  } else {
    add_all<1, T>(call);
  }
}

}  // namespace mpistrat
