// Add rows to rows of a table. What is added to one row is added in the order in which it was
// given, by one thread for each column, in its own arithmetic (half types: as float32, rounded
// once): the same bits as on the CPU side, and in every run. There are no atomic additions.
#include "reductions.cuh"

namespace mpistrat {

// The caller has sorted the rows that are added by the row of the table that they belong to, rows
// of equal ones by their position: group g is positions[starts[g]] to positions[starts[g + 1] - 1].
struct ScatterAdd {
  void* table;
  const void* values;
  const u64* rows;       // of the table, one for each group
  const u64* starts;     // and the number of all positions at the end
  const u64* positions;  // rows of `values`
  u64 num_groups, columns;
};

template <class T>
struct AddToRow {
  typedef Reduction<Sum, T> Kind;
  typedef typename Kind::Accumulator Accumulator;

  const ScatterAdd& call;

  // N columns of one group.
  template <int N>
  MPISTRAT_DEVICE void add(u64 group, u64 column) const {
    T* const row = static_cast<T*>(call.table) + call.rows[group] * call.columns;
    const T* const values = static_cast<const T*>(call.values);
    Accumulator totals[N];
    Pack<T, N> pack = load_pack<N>(static_cast<const T*>(row), column);
    MPISTRAT_UNROLL
    for (int i = 0; i < N; ++i) totals[i] = Kind::load(pack.of[i]);
    const u64 end = call.starts[group + 1];
    MPISTRAT_UNROLL_BY(kArraysAtOnce<N>)
    for (u64 k = call.starts[group]; k < end; ++k) {
      const Pack<T, N> next = load_pack<N>(values + call.positions[k] * call.columns, column);
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
  for (u64 i = grid_thread(); i < call.num_groups * packs; i += grid_threads()) {
    body.template add<N>(i / packs, i % packs * N);
  }
}

template <class T>
MPISTRAT_KERNEL scatter_add(const ScatterAdd& call) {
  constexpr int kPack = kPackOf<T>;
  const u64 addresses = reinterpret_cast<u64>(call.table) | reinterpret_cast<u64>(call.values);
  // Every row begins where packs do, or all columns are taken one by one.
  if (addresses % kAccessBytes == 0 && call.columns % kPack == 0) {
    add_all<kPack, T>(call);
  } else {
    add_all<1, T>(call);
  }
}

}  // namespace mpistrat
