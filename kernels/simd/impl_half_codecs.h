// The codecs of float16 and bfloat16: two vectors of float32 from one vector of halves. Part of
// impl_kernel_table.h: no include guard.
//
// Without a conversion instruction, the first vector holds the lower half of each 32-bit lane and
// the second the upper: shifts and masks take them apart, where widening in order needs shuffles,
// of which processors do one a cycle.

using Floats = Vector<float>;
using Bits = Vector<int32_t>;  // signed, since vectors compare signed numbers faster
using UnsignedBits = Vector<uint32_t>;

MPISTRAT_INLINE Bits shift_right(const Bits& bits, int count) {
  return Bits(UnsignedBits(bits) >> count);
}

MPISTRAT_INLINE Bits shift_left(const Bits& bits, int count) {
  return Bits(UnsignedBits(bits) << count);
}

constexpr int32_t kUpperHalf = static_cast<int32_t>(0xffff0000u);

struct Bfloat16 {
  using Element = uint16_t;
  using Lane = float;
  using V = Floats;
  static constexpr size_t kBytes = kVectorBytes;

  static MPISTRAT_INLINE Pack<V> load(const char* from) {
    const Bits pair = load_vector<Bits>(from);
    return {Floats(shift_left(pair, 16)), Floats(pair & kUpperHalf)};
  }

  // Add what carries into the upper half if it rounds up: more than a half, or a tie on an odd
  // number. Overflow becomes infinity by itself. So does no NaN become a number: what is computed
  // from bfloat16 carries the payload of a source, or the default one, whose lower halves are 0.
  static MPISTRAT_INLINE Bits rounded(const Floats& value) {
    const Bits bits = Bits(value), upper = shift_right(bits, 16);
#if MPISTRAT_VECTOR_BYTES == 64
    // In one instruction less: -1 - (upper & 1 | 0x7ffe), which is what has to be subtracted.
    constexpr int kNor = 0x15;  // not (a and b or c)
    const __m512i one = _mm512_set1_epi32(1), rest = _mm512_set1_epi32(0x7ffe);
    return bits - Bits(_mm512_ternarylogic_epi32(__m512i(upper), one, rest, kNor));
#else
    return bits + 0x7fff + (upper & 1);
#endif
  }

  static MPISTRAT_INLINE void store(char* to, const Pack<V>& pack) {
    const Bits lower = shift_right(rounded(pack.first), 16);
    store_vector(to, Bits(lower | (rounded(pack.second) & kUpperHalf)));
  }
};

#if MPISTRAT_VECTOR_BYTES >= 32

struct Float16 {
  using Element = uint16_t;
  using Lane = float;
  using V = Floats;
  static constexpr size_t kBytes = kVectorBytes;

#if MPISTRAT_VECTOR_BYTES == 64
  // The forms with a mask, since GCC warns of undefined bits within the others.
  static constexpr __mmask16 kAll = 0xffff;

  static MPISTRAT_INLINE V widened(const char* from) {
    return V(
        _mm512_maskz_cvtph_ps(kAll, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))));
  }
  static MPISTRAT_INLINE void narrow(char* to, const V& value) {
    const __m256i halves = _mm512_maskz_cvtps_ph(kAll, __m512(value), _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), halves);
  }
#else
  static MPISTRAT_INLINE V widened(const char* from) {
    return V(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
  }
  static MPISTRAT_INLINE void narrow(char* to, const V& value) {
    const __m128i halves = _mm256_cvtps_ph(__m256(value), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), halves);
  }
#endif

  static MPISTRAT_INLINE Pack<V> load(const char* from) {
    return {widened(from), widened(from + kBytes / 2)};
  }

  static MPISTRAT_INLINE void store(char* to, const Pack<V>& pack) {
    narrow(to, pack.first);
    narrow(to + kBytes / 2, pack.second);
  }
};

#else

// In software, exactly. No step computes with a subnormal float32, so that it does not matter
// whether the thread flushes them to zero, as some libraries make it do.
struct Float16 {
  using Element = uint16_t;
  using Lane = float;
  using V = Floats;
  static constexpr size_t kBytes = kVectorBytes;

  static constexpr int32_t kExponentOne = 1 << 23;           // an exponent's lowest bit
  static constexpr int32_t kBiasShift = 112 * kExponentOne;  // between the two formats' biases
  static constexpr int32_t kSmallestNormal = 113 << 23;      // 2^-14, of float16
  static constexpr int32_t kOverflow = 143 << 23;            // 2^16: infinity, in float16
  static constexpr int32_t kInfinity = 255 << 23;

  static MPISTRAT_INLINE V widened(const Bits& half) {
    const Bits magnitude = shift_left(half & 0x7fff, 13);
    const Bits is_special = magnitude >= (0x7c00 << 13);  // infinity and NaN: the highest exponent
    const Bits normal = magnitude + kBiasShift + (is_special & kBiasShift);
    // Give a subnormal an implicit leading 1, and subtract it again as a number.
    const Floats one = Floats(Bits{} + kSmallestNormal);
    const Bits subnormal = Bits(Floats(magnitude + kSmallestNormal) - one);
    const Bits bits = magnitude < kExponentOne ? subnormal : normal;
    return Floats(bits | shift_left(half & 0x8000, 16));
  }

  static MPISTRAT_INLINE Bits narrowed(const V& value) {
    const Bits magnitude = Bits(value) & 0x7fffffff;
    const Bits odd = shift_right(magnitude, 13) & 1;
    const Bits normal = shift_right(magnitude - kBiasShift + 0xfff + odd, 13);
    // The sum with 0.5 has its last bit where a subnormal has it: the addition rounds.
    const Bits half = Bits(Floats{} + 0.5f);
    const Bits subnormal = Bits(Floats(magnitude) + 0.5f) - half;
    const Bits special = 0x7c00 + ((magnitude > kInfinity) & 0x200);
    const Bits finite = magnitude < kSmallestNormal ? subnormal : normal;
    const Bits bits = magnitude >= kOverflow ? special : finite;
    return bits | (shift_right(Bits(value), 16) & 0x8000);
  }

  static MPISTRAT_INLINE Pack<V> load(const char* from) {
    const Bits pair = load_vector<Bits>(from);
    return {widened(pair & 0xffff), widened(shift_right(pair, 16))};
  }

  static MPISTRAT_INLINE void store(char* to, const Pack<V>& pack) {
    store_vector(to, Bits(narrowed(pack.first) | shift_left(narrowed(pack.second), 16)));
  }
};

#endif
