// Convert many arrays by one launch: to a half type on their way to other ranks, and back.
#include "table.cuh"

namespace mpistrat {

struct CastPiece {
  const void* from;
  void* to;
  u64 count;

  MPISTRAT_DEVICE u64 size() const { return count; }
};

// A double becomes a float on its way to a half type. Rounding twice to nearest could give another
// number than rounding once; so the first time the last bit notes whether anything was cut off.
MPISTRAT_DEVICE float rounded_to_odd(double x) {
  const float nearest = static_cast<float>(x);
  const double back = static_cast<double>(nearest);
  const u32 bits = bits_of(nearest);
  // Exact, NaN, and infinity: nothing to note. (What overflows a float overflows a half, too.)
  if (back == x || x != x || (bits & 0x7fffffffu) == 0x7f800000u || (bits & 1u) != 0) {
    return nearest;
  }
  const double size = x < 0 ? -x : x, size_back = back < 0 ? -back : back;
  return float_of(size > size_back ? bits + 1 : bits - 1);  // the odd neighbour beyond x
}

template <class To, class From>
struct Convert {
  static MPISTRAT_DEVICE To of(From x) { return narrow<To>(static_cast<Wide<To>>(widen(x))); }
};
template <>
struct Convert<Half, double> {
  static MPISTRAT_DEVICE Half of(double x) { return narrow<Half>(rounded_to_odd(x)); }
};
// NumPy's way: ml_dtypes, whose type this is, rounds a double to a float first.

template <class To, class From>
struct CastPack {
  const From* from;
  To* to;

  static constexpr int kSmaller =
      static_cast<int>(sizeof(To) < sizeof(From) ? sizeof(To) : sizeof(From));
  static constexpr int kCount = kAccessBytes / kSmaller;

  template <int N>
  MPISTRAT_DEVICE void cast(u64 at) const {
    const Pack<From, N> loaded = load_pack<N>(from, at);
    Pack<To, N> converted;
    MPISTRAT_UNROLL
    for (int i = 0; i < N; ++i) converted.of[i] = Convert<To, From>::of(loaded.of[i]);
    store_pack<N>(to, at, converted);
  }
  MPISTRAT_DEVICE void element(u64 i) const { cast<1>(i); }
  MPISTRAT_DEVICE void pack(u64 i) const { cast<kCount>(i); }

  MPISTRAT_DEVICE u64 head(u64 count) const {
    if constexpr (sizeof(To) < sizeof(From)) {
      Alignment<kCount> alignment(to);
      alignment.add(from);
      return alignment.head(count);
    } else {
      Alignment<kCount> alignment(from);
      alignment.add(to);
      return alignment.head(count);
    }
  }
};

template <class To, class From>
struct CastChunk {
  MPISTRAT_DEVICE void operator()(const CastPiece& piece, u64 begin, u64 end) const {
    typedef CastPack<To, From> Body;
    const Body body{static_cast<const From*>(piece.from) + begin,
                    static_cast<To*>(piece.to) + begin};
    const u64 count = end - begin;
    for_each_pack<Body::kCount>(count, body.head(count), threadIdx.x, blockDim.x, body);
  }
};

template <class To, class From>
MPISTRAT_KERNEL cast(const Table<CastPiece>& table) {
  for_each_chunk(table, CastChunk<To, From>{});
}

}  // namespace mpistrat
