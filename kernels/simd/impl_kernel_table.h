// The kernels, and their table by operation and dtype. No include guard: each instruction set
// includes this once, with three macros that say which.
//   MPISTRAT_ISA           the namespace that keeps its code apart from the others'
//   MPISTRAT_ISA_NAME      what mpistrat_simd_name calls it
//   MPISTRAT_VECTOR_BYTES  the width of its vectors
//
// The standard headers come before the compiler is told of the instruction set, and no function of
// theirs is called but memcpy: the linker keeps one copy of an inline function, and if that were
// the one compiled here, processors without the instruction set would run it too.

namespace mpistrat {
namespace MPISTRAT_ISA {
namespace {

// clang-format off: the order matters.
#include "impl_codecs.h"
#include "impl_half_codecs.h"
#include "impl_half_conversions.h"
#include "impl_ops.h"
#include "impl_results.h"
#include "impl_optimizer_updates.h"
// clang-format on

constexpr size_t kTileBytes = 4096;  // partial sums of many sources, in the first-level cache

template <class Codec, class Op>
struct Reduction {
  using P = Pack<typename Codec::V>;
  using D = Divisor<typename Codec::Lane>;
  static constexpr size_t kBytes = Codec::kBytes;
  static constexpr size_t kTile = kTileBytes / sizeof(P) * kBytes;

  template <class Out>
  static MPISTRAT_INLINE P load(const char* source, size_t at, const Sources& sources) {
    if (Out::kFetches) prefetch<Codec, 0>(source, at + kAhead, sources.nbytes);
    return Codec::load(source + at);
  }

  static MPISTRAT_INLINE P finished(const P& pack, const D& divisor) {
    return divisor.apply(Op::finish(pack));
  }

  // Less than a pack, the bytes from `at` on: the same arithmetic on a pack filled up with zeros.
  static __attribute__((noinline)) void partial(const Results& to, size_t at,
                                                const Sources& sources, size_t begin, size_t nbytes,
                                                const D& divisor) {
    char buffer[kBytes] = {};
    std::memcpy(buffer, sources.data[0] + begin + at, nbytes);
    P pack = Codec::load(buffer);
    for (int k = 1; k < sources.num; ++k) {
      std::memcpy(buffer, sources.data[k] + begin + at, nbytes);
      pack = Op::combine(pack, Codec::load(buffer));
    }
    Codec::store(buffer, finished(pack, divisor));
    std::memcpy(to.first + at, buffer, nbytes);
    if (to.second) std::memcpy(to.second + at, buffer, nbytes);
  }

  // Whole packs of one source, from `at` to `end`. Here and below, each pack is read before it is
  // written, as a place of `out` may be one of the sources.
  template <class Out>
  static void one(Out out, size_t at, size_t end, const Sources& sources, size_t begin,
                  const D& divisor) {
    const char* source = sources.data[0];
    for (size_t i = at; i < end; i += kBytes) {
      out.put(i, finished(load<Out>(source, begin + i, sources), divisor));
    }
  }

  template <class Out>
  static void two(Out out, size_t at, size_t end, const Sources& sources, size_t begin,
                  const D& divisor) {
    const char* first = sources.data[0];
    const char* second = sources.data[1];
    for (size_t i = at; i < end; i += kBytes) {
      out.fetch(i + kAhead, end);
      const P pack = load<Out>(first, begin + i, sources);
      out.put(i, finished(Op::combine(pack, load<Out>(second, begin + i, sources)), divisor));
    }
  }

  // At most kTile bytes of three sources or more. `out` is written while the last is read, and
  // not before.
  template <class Out>
  static void tile(Out out, size_t at, size_t end, const Sources& sources, size_t begin,
                   const D& divisor) {
    P sums[kTile / kBytes];
    for (size_t i = at; i < end; i += kBytes) {
      const P pack = load<Out>(sources.data[0], begin + i, sources);
      sums[(i - at) / kBytes] = Op::combine(pack, load<Out>(sources.data[1], begin + i, sources));
    }
    for (int k = 2; k < sources.num - 1; ++k) {
      const char* source = sources.data[k];
      for (size_t i = at; i < end; i += kBytes) {
        P& sum = sums[(i - at) / kBytes];
        sum = Op::combine(sum, load<Out>(source, begin + i, sources));
      }
    }
    const char* last = sources.data[sources.num - 1];
    for (size_t i = at; i < end; i += kBytes) {
      out.fetch(i + kAhead, end);
      const P pack = load<Out>(last, begin + i, sources);
      out.put(i, finished(Op::combine(sums[(i - at) / kBytes], pack), divisor));
    }
  }

  template <class Out>
  static void whole(Out out, size_t at, size_t end, const Sources& sources, size_t begin,
                    const D& divisor) {
    if (sources.num == 1) return one(out, at, end, sources, begin, divisor);
    if (sources.num == 2) return two(out, at, end, sources, begin, divisor);
    for (; at < end; at += kTile) {
      tile(out, at, end - at < kTile ? end : at + kTile, sources, begin, divisor);
    }
  }

  // Stores that cross cache lines cost twice: reach an aligned address first, if elements do.
  static size_t head_bytes(const char* out, size_t nbytes) {
    const size_t head = -reinterpret_cast<uintptr_t>(out) % kVectorBytes;
    const bool pays = head % sizeof(typename Codec::Element) == 0 && nbytes > 16 * kBytes;
    return pays ? head : 0;
  }

  // Sums are most of what is reduced; three loops of every kernel would take half as long again to
  // compile.
  static constexpr bool kHasPlaces =
      std::is_same<Op, Sum>::value || std::is_same<Codec, Bool>::value;

  static void run(const Results& to, const Sources& sources, size_t begin, size_t nbytes,
                  int64_t divisor) {
    const D d(divisor);
    const size_t head = head_bytes(to.first, nbytes);
    const size_t end = head + (nbytes - head) / kBytes * kBytes;
    if (head > 0) partial(to, 0, sources, begin, head, d);
    if (!kHasPlaces || (!to.second && !to.is_past)) {
      whole(OnePlace<Codec>{to.first}, head, end, sources, begin, d);
    } else if constexpr (kHasPlaces) {
      if (to.is_past)
        whole(Places<Codec, true>{to.first, to.second}, head, end, sources, begin, d);
      else
        whole(Places<Codec, false>{to.first, to.second}, head, end, sources, begin, d);
    }
    if (end < nbytes) partial(to, end, sources, begin, nbytes - end, d);
  }
};

template <class Codec, class Op>
constexpr ReduceKernel reduction() {
  return &Reduction<Codec, Op>::run;
}

template <class T, class Op>
constexpr ReduceKernel native() {
  return &Reduction<Native<T>, Op>::run;
}

#define MPISTRAT_UPDATES(rule) {&Updates<rule, float>::run, &Updates<rule, double>::run}

}  // namespace

// In the order of the dtypes. Where signs make no difference, both kinds of integers share a
// kernel.
#define MPISTRAT_SIGNLESS(op)                                                                    \
  native<uint8_t, op>(), native<uint16_t, op>(), native<uint32_t, op>(), native<uint64_t, op>(), \
      native<uint8_t, op>(), native<uint16_t, op>(), native<uint32_t, op>(),                     \
      native<uint64_t, op>()
#define MPISTRAT_SIGNED(op)                                                                  \
  native<int8_t, op>(), native<int16_t, op>(), native<int32_t, op>(), native<int64_t, op>(), \
      native<uint8_t, op>(), native<uint16_t, op>(), native<uint32_t, op>(),                 \
      native<uint64_t, op>()
#define MPISTRAT_FLOATS(op) \
  reduction<Float16, op>(), reduction<Bfloat16, op>(), native<float, op>(), native<double, op>()

const KernelTable kTable = {
    MPISTRAT_ISA_NAME,
    {
        // Sum: of complex numbers, as of twice as many reals.
        {reduction<Bool, Or>(), MPISTRAT_SIGNLESS(Sum), MPISTRAT_FLOATS(Sum), native<float, Sum>(),
         native<double, Sum>()},
        // Prod
        {reduction<Bool, And>(), MPISTRAT_SIGNLESS(Prod), MPISTRAT_FLOATS(Prod),
         reduction<Complex<float>, ComplexProd>(), reduction<Complex<double>, ComplexProd>()},
        // Min
        {reduction<Bool, And>(), MPISTRAT_SIGNED(Min), MPISTRAT_FLOATS(NanWins<Min>)},
        // Max
        {reduction<Bool, Or>(), MPISTRAT_SIGNED(Max), MPISTRAT_FLOATS(NanWins<Max>)},
        // And, or, xor
        {reduction<Bool, And>(), MPISTRAT_SIGNLESS(And)},
        {reduction<Bool, Or>(), MPISTRAT_SIGNLESS(Or)},
        {reduction<Bool, Xor>(), MPISTRAT_SIGNLESS(Xor)},
    },
    {MPISTRAT_UPDATES(Descent), MPISTRAT_UPDATES(Momentum), MPISTRAT_UPDATES(Nesterov),
     MPISTRAT_UPDATES(Adagrad), MPISTRAT_UPDATES(Adam), MPISTRAT_UPDATES(AmsGrad)},
    &widen_float16,
    &widen_plainly<Bfloat16Bits>,
    &narrow_float16,
    &narrow_plainly<Bfloat16Bits>};

}  // namespace MPISTRAT_ISA
}  // namespace mpistrat
