// The operations (sum, max, ...) on packs. Part of impl_kernel_table.h: no include guard.
//   combine  two packs into one
//   finish   the last pack, before it is divided and stored

// What is done to each vector by itself.
template <class Op>
struct Lanewise {
  template <class V>
  static MPISTRAT_INLINE Pack<V> combine(const Pack<V>& a, const Pack<V>& b) {
    return {Op::apply(a.first, b.first), Op::apply(a.second, b.second)};
  }

  template <class V>
  static MPISTRAT_INLINE Pack<V> finish(const Pack<V>& pack) {
    return {Op::finish_vector(pack.first), Op::finish_vector(pack.second)};
  }

  template <class V>
  static MPISTRAT_INLINE V finish_vector(const V& vector) {
    return vector;
  }
};

struct Sum : Lanewise<Sum> {
  template <class V>
  static MPISTRAT_INLINE V apply(const V& a, const V& b) {
    return a + b;
  }
};

struct Prod : Lanewise<Prod> {
  template <class V>
  static MPISTRAT_INLINE V apply(const V& a, const V& b) {
    return a * b;
  }
};

struct And : Lanewise<And> {
  template <class V>
  static MPISTRAT_INLINE V apply(const V& a, const V& b) {
    return a & b;
  }
};

struct Or : Lanewise<Or> {
  template <class V>
  static MPISTRAT_INLINE V apply(const V& a, const V& b) {
    return a | b;
  }
};

struct Xor : Lanewise<Xor> {
  template <class V>
  static MPISTRAT_INLINE V apply(const V& a, const V& b) {
    return a ^ b;
  }
};

struct Min : Lanewise<Min> {
  template <class V>
  static MPISTRAT_INLINE V apply(const V& a, const V& b) {
    return a < b ? a : b;
  }
};

struct Max : Lanewise<Max> {
  template <class V>
  static MPISTRAT_INLINE V apply(const V& a, const V& b) {
    return a > b ? a : b;
  }
};

// Of floats. A comparison with NaN is false, which leaves `b`: right unless `a` is the NaN. Which
// zero is left depends on the order of the sources; adding 0.0 makes it the positive one.
template <class Op>
struct NanWins : Lanewise<NanWins<Op>> {
  template <class V>
  static MPISTRAT_INLINE V apply(const V& a, const V& b) {
    return a == a ? Op::apply(a, b) : a;
  }

  template <class V>
  static MPISTRAT_INLINE V finish_vector(const V& vector) {
    return vector + V{};
  }
};

// The plain formula, as NumPy has it: no rescue of infinities from NaN.
struct ComplexProd : Lanewise<ComplexProd> {
  template <class V>
  static MPISTRAT_INLINE Pack<V> combine(const Pack<V>& a, const Pack<V>& b) {
    return {a.first * b.first - a.second * b.second, a.first * b.second + a.second * b.first};
  }
};

// Division of the result by a number above 1, of floats.
template <class T>
class Divisor {
 public:
  explicit Divisor(int64_t divisor)
      : divides_(divisor > 1),
        is_power_of_two_((divisor & (divisor - 1)) == 0),
        number_(static_cast<T>(divides_ ? divisor : 1)),
        reciprocal_(1 / number_) {}

  template <class V>
  MPISTRAT_INLINE Pack<V> apply(const Pack<V>& pack) const {
    if constexpr (std::is_floating_point<T>::value) {
      if (!divides_) return pack;
      // The reciprocal of a power of two is exact: the same bits, sooner.
      if (is_power_of_two_) return {pack.first * reciprocal_, pack.second * reciprocal_};
      return {pack.first / number_, pack.second / number_};
    }
    return pack;
  }

 private:
  bool divides_;
  bool is_power_of_two_;
  T number_;
  T reciprocal_;
};
