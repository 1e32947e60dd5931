// Apply the update rules of the optimizers to many variables by one launch, each value read and
// written once. The arithmetic is that of mpistrat/tables/update_rules.py, step by step, so that
// the results have its bits: float32 for half types, every product, sum, quotient and root rounded.
#include "table.cuh"

namespace mpistrat {

constexpr int kMaxSlots = 3;

struct UpdatePiece {
  void* variable;
  const void* gradient;
  void* slots[kMaxSlots];  // in the order in which the rule names them
  u64 count;

  MPISTRAT_DEVICE u64 size() const { return count; }
};

constexpr int kMaxNumbers = 4;

// The numbers of a rule, rounded to the type of the slots.
struct Update {
  Table<UpdatePiece> table;
  double numbers[kMaxNumbers];
};

template <class W>
struct Numbers {
  W of[kMaxNumbers];
};

// A rule returns the move to add to one element of the variable, and changes its slots.

// Also the addition of an array times a number. Numbers: minus the learning rate.
struct Descent {
  static constexpr int kSlots = 0;

  template <class W>
  static MPISTRAT_DEVICE W move(W gradient, W*, const Numbers<W>& numbers) {
    return gradient * numbers.of[0];
  }
};

// Numbers: minus the learning rate, momentum.
struct Momentum {
  static constexpr int kSlots = 1;

  template <class W>
  static MPISTRAT_DEVICE W move(W gradient, W* slots, const Numbers<W>& numbers) {
    const W change = gradient * numbers.of[0];
    const W kept = slots[0] * numbers.of[1];
    slots[0] = kept + change;
    return slots[0];
  }
};

struct Nesterov {
  static constexpr int kSlots = 1;

  template <class W>
  static MPISTRAT_DEVICE W move(W gradient, W* slots, const Numbers<W>& numbers) {
    const W change = gradient * numbers.of[0];
    const W velocity = Momentum::move(gradient, slots, numbers);
    return velocity * numbers.of[1] + change;
  }
};

// Numbers: minus the learning rate, epsilon.
struct Adagrad {
  static constexpr int kSlots = 1;

  template <class W>
  static MPISTRAT_DEVICE W move(W gradient, W* slots, const Numbers<W>& numbers) {
    slots[0] = slots[0] + gradient * gradient;
    return gradient * numbers.of[0] / square_root(slots[0] + numbers.of[1]);
  }
};

// Numbers: minus the learning rate freed of bias, 1 - beta_1, 1 - beta_2, epsilon.
struct Adam {
  static constexpr int kSlots = 2;

  template <class W>
  static MPISTRAT_DEVICE void estimate(W gradient, W* slots, const Numbers<W>& numbers) {
    slots[0] = slots[0] + (gradient - slots[0]) * numbers.of[1];
    slots[1] = slots[1] + (gradient * gradient - slots[1]) * numbers.of[2];
  }
  template <class W>
  static MPISTRAT_DEVICE W quotient(W first, W second, const Numbers<W>& numbers) {
    return first * numbers.of[0] / (square_root(second) + numbers.of[3]);
  }
  template <class W>
  static MPISTRAT_DEVICE W move(W gradient, W* slots, const Numbers<W>& numbers) {
    estimate(gradient, slots, numbers);
    return quotient(slots[0], slots[1], numbers);
  }
};

struct AmsGrad {
  static constexpr int kSlots = 3;

  template <class W>
  static MPISTRAT_DEVICE W move(W gradient, W* slots, const Numbers<W>& numbers) {
    Adam::estimate(gradient, slots, numbers);
    // The larger one, or NaN, as NumPy's maximum.
    slots[2] = slots[2] >= slots[1] || slots[2] != slots[2] ? slots[2] : slots[1];
    return Adam::quotient(slots[0], slots[2], numbers);
  }
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
      const W move = Rule::move(static_cast<W>(widen(gradients.of[i])), mine, numbers);
      values.of[i] = narrow<V>(widen(values.of[i]) + move);
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
