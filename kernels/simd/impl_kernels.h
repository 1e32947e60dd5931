// No include guard: each instruction set includes this once, with three macros that say which.
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
#include "impl_halves.h"
#include "impl_ops.h"
// clang-format on

constexpr size_t kTileBytes = 4096;  // partial sums of many sources, in the first-level cache
constexpr size_t kAhead = 2048;      // how far memory is fetched before it is used

// The arithmetic on halves keeps so many instructions in flight that few loads and stores are: ask
// for a pack at `at` in time. Never for what lies behind the end, where another rank may be
// writing. What needs no arithmetic but the reduction's would only be slower: 512 KiB of float32 in
// 21 us, and in 17 without, on one AMD EPYC.
template <class Codec, int kIsWritten>
MPISTRAT_INLINE void prefetch(const char* data, size_t at, size_t end) {
  constexpr bool is_half = sizeof(typename Codec::Element) < sizeof(typename Codec::Lane);
  if (!is_half || at + Codec::kBytes > end) return;
  for (size_t line = 0; line < Codec::kBytes; line += 64)
    __builtin_prefetch(data + at + line, kIsWritten);
}

template <class Codec, class Op>
struct Reduction {
  using P = Pack<typename Codec::V>;
  using D = Divisor<typename Codec::Lane>;
  static constexpr size_t kBytes = Codec::kBytes;
  static constexpr size_t kTile = kTileBytes / sizeof(P) * kBytes;

  static MPISTRAT_INLINE P load(const char* source, size_t at, const Sources& sources) {
    prefetch<Codec, 0>(source, at + kAhead, sources.nbytes);
    return Codec::load(source + at);
  }

  static MPISTRAT_INLINE void finish(char* out, const P& pack, const D& divisor) {
    Codec::store(out, divisor.apply(Op::finish(pack)));
  }

  // Less than a pack: the same arithmetic on a pack filled up with zeros.
  static __attribute__((noinline)) void partial(char* out, const Sources& sources, size_t begin,
                                                size_t nbytes, const D& divisor) {
    char buffer[kBytes] = {};
    std::memcpy(buffer, sources.data[0] + begin, nbytes);
    P pack = Codec::load(buffer);
    for (int k = 1; k < sources.num; ++k) {
      std::memcpy(buffer, sources.data[k] + begin, nbytes);
      pack = Op::combine(pack, Codec::load(buffer));
    }
    finish(buffer, pack, divisor);
    std::memcpy(out, buffer, nbytes);
  }

  // Whole packs of one source. Here and below, each pack is read before it is written, as `out`
  // may be one of the sources.
  static void one(char* out, const Sources& sources, size_t begin, size_t nbytes,
                  const D& divisor) {
    const char* source = sources.data[0];
    for (size_t i = 0; i < nbytes; i += kBytes) {
      finish(out + i, load(source, begin + i, sources), divisor);
    }
  }

  static void two(char* out, const Sources& sources, size_t begin, size_t nbytes,
                  const D& divisor) {
    const char* first = sources.data[0];
    const char* second = sources.data[1];
    for (size_t i = 0; i < nbytes; i += kBytes) {
      prefetch<Codec, 1>(out, i + kAhead, nbytes);
      const P pack = load(first, begin + i, sources);
      finish(out + i, Op::combine(pack, load(second, begin + i, sources)), divisor);
    }
  }

  // At most kTile bytes of three sources or more. `out` is written while the last is read, and
  // not before.
  static void tile(char* out, const Sources& sources, size_t begin, size_t nbytes,
                   const D& divisor) {
    P sums[kTile / kBytes];
    for (size_t i = 0; i < nbytes; i += kBytes) {
      const P pack = load(sources.data[0], begin + i, sources);
      sums[i / kBytes] = Op::combine(pack, load(sources.data[1], begin + i, sources));
    }
    for (int k = 2; k < sources.num - 1; ++k) {
      const char* source = sources.data[k];
      for (size_t i = 0; i < nbytes; i += kBytes) {
        P& sum = sums[i / kBytes];
        sum = Op::combine(sum, load(source, begin + i, sources));
      }
    }
    const char* last = sources.data[sources.num - 1];
    for (size_t i = 0; i < nbytes; i += kBytes) {
      prefetch<Codec, 1>(out, i + kAhead, nbytes);
      const P pack = load(last, begin + i, sources);
      finish(out + i, Op::combine(sums[i / kBytes], pack), divisor);
    }
  }

  static void whole(char* out, const Sources& sources, size_t begin, size_t nbytes,
                    const D& divisor) {
    if (sources.num == 1) return one(out, sources, begin, nbytes, divisor);
    if (sources.num == 2) return two(out, sources, begin, nbytes, divisor);
    for (size_t done = 0; done < nbytes; done += kTile) {
      const size_t left = nbytes - done;
      tile(out + done, sources, begin + done, left < kTile ? left : kTile, divisor);
    }
  }

  // Stores that cross cache lines cost twice: reach an aligned address first, if elements do.
  static size_t head_bytes(const char* out, size_t nbytes) {
    const size_t head = -reinterpret_cast<uintptr_t>(out) % kVectorBytes;
    const bool pays = head % sizeof(typename Codec::Element) == 0 && nbytes > 16 * kBytes;
    return pays ? head : 0;
  }

  static void run(char* out, const Sources& sources, size_t begin, size_t nbytes, int64_t divisor) {
    const D d(divisor);
    const size_t head = head_bytes(out, nbytes);
    const size_t packed = (nbytes - head) / kBytes * kBytes;
    const size_t tail = head + packed;
    if (head > 0) partial(out, sources, begin, head, d);
    whole(out + head, sources, begin + head, packed, d);
    if (tail < nbytes) partial(out + tail, sources, begin + tail, nbytes - tail, d);
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
    }};

}  // namespace MPISTRAT_ISA
}  // namespace mpistrat
