// The update rules of the optimizers, for one element, or for a vector of them. The arithmetic is
// that of mpistrat/tables/update_rules.py, step by step, so that results have its bits: every
// product, sum, quotient and root is rounded.
//
// kernels/simd includes this, too, for arrays of the host, once for each instruction set; so it
// stands inside of a namespace, and whoever includes it says before what MPISTRAT_DEVICE is, and
// has a `square_root`.

constexpr int kMaxSlots = 3;
constexpr int kMaxNumbers = 4;

// The numbers of a rule, rounded to the type of the slots.
template <class W>
struct Numbers {
  W of[kMaxNumbers];
};

// A rule returns the change to add to one element of the variable, and changes its slots.

// Also the addition of an array times a number. Numbers: minus the learning rate.
struct Descent {
  static constexpr int kSlots = 0;

  template <class W>
  static MPISTRAT_DEVICE W change(W gradient, W*, const Numbers<W>& numbers) {
    return gradient * numbers.of[0];
  }
};

// Numbers: minus the learning rate, momentum.
struct Momentum {
  static constexpr int kSlots = 1;

  template <class W>
  static MPISTRAT_DEVICE W change(W gradient, W* slots, const Numbers<W>& numbers) {
    const W change = gradient * numbers.of[0];
    const W kept = slots[0] * numbers.of[1];
    slots[0] = kept + change;
    return slots[0];
  }
};

struct Nesterov {
  static constexpr int kSlots = 1;

  template <class W>
  static MPISTRAT_DEVICE W change(W gradient, W* slots, const Numbers<W>& numbers) {
    const W change = gradient * numbers.of[0];
    const W velocity = Momentum::change(gradient, slots, numbers);
    return velocity * numbers.of[1] + change;
  }
};

// Numbers: minus the learning rate, epsilon.
struct Adagrad {
  static constexpr int kSlots = 1;

  template <class W>
  static MPISTRAT_DEVICE W change(W gradient, W* slots, const Numbers<W>& numbers) {
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
  static MPISTRAT_DEVICE W change(W gradient, W* slots, const Numbers<W>& numbers) {
    estimate(gradient, slots, numbers);
    return quotient(slots[0], slots[1], numbers);
  }
};

struct AmsGrad {
  static constexpr int kSlots = 3;

  template <class W>
  static MPISTRAT_DEVICE W change(W gradient, W* slots, const Numbers<W>& numbers) {
    Adam::estimate(gradient, slots, numbers);
    // The larger one, or NaN, as NumPy's maximum. Not by ||, which vectors lack in Clang.
    const W larger = slots[2] >= slots[1] ? slots[2] : slots[1];
    slots[2] = slots[2] == slots[2] ? larger : slots[2];
    return Adam::quotient(slots[0], slots[2], numbers);
  }
};
