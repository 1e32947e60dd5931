// Conversions between half types and float32, in order, for arithmetic of several steps that rounds
// in the last. Part of impl_kernel_table.h: no include guard. Plain integers, which compilers turn
// into vectors, where there is no instruction; no step computes with a subnormal float32, as in
// impl_half_codecs.h.

constexpr uint32_t kExponentOne = 1u << 23;          // an exponent's lowest bit
constexpr uint32_t kBiasShift = 112 * kExponentOne;  // between the biases of the two formats
constexpr uint32_t kSmallestNormal = 113u << 23;     // 2^-14, of float16
constexpr uint32_t kOverflow = 143u << 23;           // 2^16: infinity, in float16
constexpr uint32_t kInfinity = 255u << 23;

MPISTRAT_INLINE float as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

MPISTRAT_INLINE uint32_t as_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

struct Float16Bits {
  static MPISTRAT_INLINE uint32_t widened(uint16_t half) {
    const uint32_t magnitude = (half & 0x7fffu) << 13;
    const uint32_t special = magnitude >= (0x7c00u << 13) ? kBiasShift : 0;
    const uint32_t normal = magnitude + kBiasShift + special;
    // Give a subnormal an implicit leading 1, and subtract it again as a number.
    const uint32_t subnormal =
        as_bits(as_float(magnitude + kSmallestNormal) - as_float(kSmallestNormal));
    return (magnitude < kExponentOne ? subnormal : normal) | (half & 0x8000u) << 16;
  }

  static MPISTRAT_INLINE uint16_t narrowed(uint32_t bits) {
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint32_t odd = magnitude >> 13 & 1;
    const uint32_t normal = (magnitude - kBiasShift + 0xfff + odd) >> 13;
    // The sum with 0.5 has its last bit where a subnormal has it: the addition rounds.
    const bool is_small = magnitude < kSmallestNormal;
    const uint32_t subnormal = as_bits(as_float(is_small ? magnitude : 0) + 0.5f) - as_bits(0.5f);
    const uint32_t special = 0x7c00u + (magnitude > kInfinity ? 0x200u : 0);
    const uint32_t finite = is_small ? subnormal : normal;
    return static_cast<uint16_t>((magnitude >= kOverflow ? special : finite) |
                                 (bits >> 16 & 0x8000u));
  }
};

struct Bfloat16Bits {
  static MPISTRAT_INLINE uint32_t widened(uint16_t half) {
    return static_cast<uint32_t>(half) << 16;
  }

  // A NaN is not rounded, which could make a zero of it.
  static MPISTRAT_INLINE uint16_t narrowed(uint32_t bits) {
    const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    const bool is_nan = (bits & 0x7fffffffu) > kInfinity;
    return static_cast<uint16_t>(is_nan ? bits >> 16 | 0x40u : rounded);
  }
};

template <class Format>
void widen_plainly(uint32_t* to, const uint16_t* from, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = Format::widened(from[i]);
}

template <class Format>
void narrow_plainly(uint16_t* to, const uint32_t* from, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = Format::narrowed(from[i]);
}

#if MPISTRAT_VECTOR_BYTES >= 32

constexpr size_t kFloatLanes = kVectorBytes / sizeof(float);

void widen_float16(uint32_t* to, const uint16_t* from, size_t count) {
  size_t i = 0;
  for (; i + kFloatLanes <= count; i += kFloatLanes)
    store_vector(reinterpret_cast<char*>(to + i),
                 Float16::widened(reinterpret_cast<const char*>(from + i)));
  widen_plainly<Float16Bits>(to + i, from + i, count - i);
}

void narrow_float16(uint16_t* to, const uint32_t* from, size_t count) {
  size_t i = 0;
  for (; i + kFloatLanes <= count; i += kFloatLanes)
    Float16::narrow(reinterpret_cast<char*>(to + i),
                    load_vector<Floats>(reinterpret_cast<const char*>(from + i)));
  narrow_plainly<Float16Bits>(to + i, from + i, count - i);
}

#else

void widen_float16(uint32_t* to, const uint16_t* from, size_t count) {
  widen_plainly<Float16Bits>(to, from, count);
}

void narrow_float16(uint16_t* to, const uint32_t* from, size_t count) {
  narrow_plainly<Float16Bits>(to, from, count);
}

#endif
