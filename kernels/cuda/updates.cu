// Apply the update rules of the optimizers to many variables by one launch, each value read and
// written once. The arithmetic is that of mpistrat/tables/update_rules.py, step by step, so that
// the results have its bits: float32 for half types, every product, sum, quotient and root rounded.
#include "table.cuh"

namespace mpistrat {

#include "update_rules.cuh"

struct UpdatePiece {
  void* variable;
  const void* gradient;
  void* slots[kMaxSlots];  // in the order in which the rule names them
  u64 count;

  MPISTRAT_DEVICE u64 size() const { return count; }
};

// One launch: its table of arrays, and the numbers of its rule, not rounded yet.
struct Update {
  Table<UpdatePiece> table;
  double numbers[kMaxNumbers];
};

// Variables of type V, gradients of type G, slots of the type W in which V is computed.
template <class Rule, class V, class G>
struct UpdatePack {
  typedef Wide<V> W;
  static constexpr int kCount = kPackOf<W>;

  V* variable;
  const G* gradient;
  W* slots[kMaxSlots];
  const Numbers<W>& numbers;

  template <int N>
  MPISTRAT_DEVICE void update(u64 at) const {
    Pack<V, N> values = load_pack<N>(static_cast<const V*>(variable), at);
    const Pack<G, N> gradients = load_pack<N>(gradient, at);
    Pack<W, N> kept[kMaxSlots];
    MPISTRAT_UNROLL
    for (int s = 0; s < Rule::kSlots; ++s) {
      kept[s] = load_pack<N>(static_cast<const W*>(slots[s]), at);
    }
    MPISTRAT_UNROLL
    for (int i = 0; i < N; ++i) {
      W mine[kMaxSlots];
      MPISTRAT_UNROLL
      for (int s = 0; s < Rule::kSlots; ++s) mine[s] = kept[s].of[i];
      const W change = Rule::change(static_cast<W>(widen(gradients.of[i])), mine, numbers);
      values.of[i] = narrow<V>(widen(values.of[i]) + change);
      MPISTRAT_UNROLL
      for (int s = 0; s < Rule::kSlots; ++s) kept[s].of[i] = mine[s];
    }
    store_pack<N>(variable, at, values);
    MPISTRAT_UNROLL
    for (int s = 0; s < Rule::kSlots; ++s) store_pack<N>(slots[s], at, kept[s]);
  }
  MPISTRAT_DEVICE void element(u64 i) const { update<1>(i); }
  MPISTRAT_DEVICE void pack(u64 i) const { update<kCount>(i); }

  MPISTRAT_DEVICE u64 head(u64 count) const {
    Alignment<kCount> alignment(variable);
    alignment.add(gradient);
    for (int s = 0; s < Rule::kSlots; ++s) alignment.add(slots[s]);
    return alignment.head(count);
  }
};

template <class Rule, class V, class G>
struct UpdateChunk {
  typedef Wide<V> W;

  const Numbers<W>& numbers;

  MPISTRAT_DEVICE void operator()(const UpdatePiece& piece, u64 begin, u64 end) const {
    typedef UpdatePack<Rule, V, G> Body;
    Body body{static_cast<V*>(piece.variable) + begin,
              static_cast<const G*>(piece.gradient) + begin,
              {},
              numbers};
    MPISTRAT_UNROLL
    for (int s = 0; s < Rule::kSlots; ++s) body.slots[s] = static_cast<W*>(piece.slots[s]) + begin;
    const u64 count = end - begin;
    for_each_pack<Body::kCount>(count, body.head(count), threadIdx.x, blockDim.x, body);
  }
};

template <class Rule, class V, class G>
MPISTRAT_KERNEL update(const Update& call) {
  Numbers<Wide<V>> numbers;
  MPISTRAT_UNROLL
  for (int i = 0; i < kMaxNumbers; ++i) numbers.of[i] = static_cast<Wide<V>>(call.numbers[i]);
  for_each_chunk(call.table, UpdateChunk<Rule, V, G>{numbers});
}

}  // namespace mpistrat
