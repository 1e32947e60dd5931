// The operations, and the reduction of the same element of several arrays. The results are those of
// the CPU side (kernels/include/mpistrat/simd.h, mpistrat/tables/reduction_ops.py): arrays are
// combined in their order, integers wrap, a NaN wins minima and maxima, which are never -0.0, half
// types are rounded once, and a mean of integers or bools is float64.
#pragma once
#include "vectors.cuh"

namespace mpistrat {

constexpr int kMaxRanks = 16;  // of one machine

// By value in the arguments of a launch: no table has to be copied to the GPU beforehand.
struct Sources {
  const void* of[kMaxRanks];
};
struct Results {
  void* of[kMaxRanks];
};

// ---------------------------------------------------------------- arithmetic

// Unsigned numbers wrap, and those below 32 bits must not become signed ones.
template <int kBytes>
struct UnsignedOf {
  typedef u32 type;
};
template <>
struct UnsignedOf<8> {
  typedef u64 type;
};
template <class T>
using Unsigned = typename UnsignedOf<sizeof(T)>::type;

struct Sum {
  template <class T>
  static MPISTRAT_DEVICE T combine(T a, T b) {
    if constexpr (IsFloating<T>::value) {
      return a + b;
    } else {
      return static_cast<T>(static_cast<Unsigned<T>>(a) + static_cast<Unsigned<T>>(b));
    }
  }
  static MPISTRAT_DEVICE Bool combine(Bool a, Bool b) {
    return Bool{static_cast<u8>(a.byte | b.byte)};
  }
  template <class R>
  static MPISTRAT_DEVICE Complex<R> combine(Complex<R> a, Complex<R> b) {
    return {a.real + b.real, a.imaginary + b.imaginary};
  }
};

struct Prod {
  template <class T>
  static MPISTRAT_DEVICE T combine(T a, T b) {
    if constexpr (IsFloating<T>::value) {
      return a * b;
    } else {
      return static_cast<T>(static_cast<Unsigned<T>>(a) * static_cast<Unsigned<T>>(b));
    }
  }
  static MPISTRAT_DEVICE Bool combine(Bool a, Bool b) {
    return Bool{static_cast<u8>(a.byte & b.byte)};
  }
  // The plain formula, as NumPy has it: no rescue of infinities from NaN.
  template <class R>
  static MPISTRAT_DEVICE Complex<R> combine(Complex<R> a, Complex<R> b) {
    return {a.real * b.real - a.imaginary * b.imaginary,
            a.real * b.imaginary + a.imaginary * b.real};
  }
};

// A comparison with NaN is false, which leaves `b`: right unless `a` is the NaN.
struct Min {
  template <class T>
  static MPISTRAT_DEVICE T combine(T a, T b) {
    return a < b || a != a ? a : b;
  }
  static MPISTRAT_DEVICE Bool combine(Bool a, Bool b) { return Prod::combine(a, b); }
};

struct Max {
  template <class T>
  static MPISTRAT_DEVICE T combine(T a, T b) {
    return a > b || a != a ? a : b;
  }
  static MPISTRAT_DEVICE Bool combine(Bool a, Bool b) { return Sum::combine(a, b); }
};

struct And {
  template <class T>
  static MPISTRAT_DEVICE T combine(T a, T b) {
    return static_cast<T>(a & b);
  }
  static MPISTRAT_DEVICE Bool combine(Bool a, Bool b) { return Prod::combine(a, b); }
};

struct Or {
  template <class T>
  static MPISTRAT_DEVICE T combine(T a, T b) {
    return static_cast<T>(a | b);
  }
  static MPISTRAT_DEVICE Bool combine(Bool a, Bool b) { return Sum::combine(a, b); }
};

struct Xor {
  template <class T>
  static MPISTRAT_DEVICE T combine(T a, T b) {
    return static_cast<T>(a ^ b);
  }
  static MPISTRAT_DEVICE Bool combine(Bool a, Bool b) {
    return Bool{static_cast<u8>(a.byte ^ b.byte)};
  }
};

struct Mean : Sum {};

// ---------------------------------------------------------------- from elements to results

// Which of two zeros a minimum is depends on their order; adding 0.0 makes it the positive one.
template <class Op, class T>
MPISTRAT_DEVICE T without_negative_zero(T x) {
  return x;
}
template <>
MPISTRAT_DEVICE float without_negative_zero<Min>(float x) {
  return x + 0.0f;
}
template <>
MPISTRAT_DEVICE float without_negative_zero<Max>(float x) {
  return x + 0.0f;
}
template <>
MPISTRAT_DEVICE double without_negative_zero<Min>(double x) {
  return x + 0.0;
}
template <>
MPISTRAT_DEVICE double without_negative_zero<Max>(double x) {
  return x + 0.0;
}

// What an operation does to elements of type T:
//   Accumulator, Result  the types of what is combined, and of what is stored
//   load, finish         from an element to the first, and from that to the second
template <class Op, class T>
struct Reduction {
  typedef Wide<T> Accumulator;
  typedef T Result;

  static MPISTRAT_DEVICE Accumulator load(T x) { return widen(x); }
  static MPISTRAT_DEVICE Result finish(Accumulator x, int) {
    return narrow<T>(without_negative_zero<Op>(x));
  }
};

MPISTRAT_DEVICE float divided(float x, int by) { return x / static_cast<float>(by); }
MPISTRAT_DEVICE double divided(double x, int by) { return x / static_cast<double>(by); }

// As NumPy divides by a complex number whose imaginary part is 0.
template <class R>
MPISTRAT_DEVICE Complex<R> divided(Complex<R> x, int by) {
  const R ratio = R(0) / static_cast<R>(by);
  const R scale = R(1) / (static_cast<R>(by) + R(0) * ratio);
  return {(x.real + x.imaginary * ratio) * scale, (x.imaginary - x.real * ratio) * scale};
}

// Of floats and complex numbers. Of integers and bools: the two below.
template <class T, bool kIsInteger>
struct MeanOf {
  typedef Wide<T> Accumulator;
  typedef T Result;

  static MPISTRAT_DEVICE Accumulator load(T x) { return widen(x); }
  static MPISTRAT_DEVICE Result finish(Accumulator x, int num) {
    return narrow<T>(divided(x, num));
  }
};

template <class T>
MPISTRAT_DEVICE double as_double(T x) {
  return static_cast<double>(x);
}
MPISTRAT_DEVICE double as_double(Bool x) { return x.byte != 0 ? 1.0 : 0.0; }

template <class T>
struct MeanOf<T, true> {
  typedef double Accumulator;
  typedef double Result;

  static MPISTRAT_DEVICE double load(T x) { return as_double(x); }
  static MPISTRAT_DEVICE double finish(double x, int num) { return divided(x, num); }
};

template <class T>
struct IsInteger {
  static constexpr bool value = !IsFloating<Wide<T>>::value;
};
template <class R>
struct IsInteger<Complex<R>> {
  static constexpr bool value = false;
};

template <class T>
struct Reduction<Mean, T> : MeanOf<T, IsInteger<T>::value> {};

// ---------------------------------------------------------------- many elements

// Packs of as many elements as fit into one access, of sources as of results.
template <class Op, class T>
struct PackOf {
  typedef typename Reduction<Op, T>::Result Result;
  static constexpr int kLargest =
      static_cast<int>(sizeof(Result) > sizeof(T) ? sizeof(Result) : sizeof(T));
  static constexpr int kCount = kAccessBytes / kLargest;
};

// N elements of each source, from number `at` on, combined in the order of the sources.
template <class Op, class T, int N>
MPISTRAT_DEVICE Pack<typename Reduction<Op, T>::Result, N> reduce_pack(const Sources& sources,
                                                                       int num, u64 at) {
  typedef Reduction<Op, T> Kind;
  typename Kind::Accumulator totals[N];
  const Pack<T, N> first = load_pack<N>(static_cast<const T*>(sources.of[0]), at);
  MPISTRAT_UNROLL
  for (int i = 0; i < N; ++i) totals[i] = Kind::load(first.of[i]);
  MPISTRAT_UNROLL_BY(kArraysAtOnce<N>)
  for (int source = 1; source < num; ++source) {
    const Pack<T, N> next = load_pack<N>(static_cast<const T*>(sources.of[source]), at);
    MPISTRAT_UNROLL
    for (int i = 0; i < N; ++i) totals[i] = Op::combine(totals[i], Kind::load(next.of[i]));
  }
  Pack<typename Kind::Result, N> results;
  MPISTRAT_UNROLL
  for (int i = 0; i < N; ++i) results.of[i] = Kind::finish(totals[i], num);
  return results;
}

}  // namespace mpistrat
