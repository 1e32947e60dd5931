// The codecs: load elements of a dtype into vectors, and store them again. Part of
// impl_kernel_table.h (no include guard), compiled once for each instruction set, in a namespace of
// its own. Vectors are the compilers' generic ones (GCC and Clang), MPISTRAT_VECTOR_BYTES wide;
// their arithmetic wraps and never promotes, unlike that of small integers in C++.
//
// A codec loads elements into a Pack of two vectors and stores them again:
//   Vector, Lane  what is computed with
//   Element       what is stored
//   kBytes        stored bytes in a pack

#define MPISTRAT_INLINE inline __attribute__((always_inline))

constexpr size_t kVectorBytes = MPISTRAT_VECTOR_BYTES;

template <class T>
struct VectorOf {
  typedef T type __attribute__((vector_size(MPISTRAT_VECTOR_BYTES)));
};
template <class T>
using Vector = typename VectorOf<T>::type;

template <class V>
struct Pack {
  V first;
  V second;
};

template <class V>
MPISTRAT_INLINE V load_vector(const char* from) {
  V vector;
  std::memcpy(&vector, from, sizeof vector);  // one unaligned load
  return vector;
}

template <class V>
MPISTRAT_INLINE void store_vector(char* to, const V& vector) {
  std::memcpy(to, &vector, sizeof vector);
}

// Numbers that are stored as they are computed with. Sums of complex numbers are sums of reals.
template <class T>
struct Native {
  using Element = T;
  using Lane = T;
  using V = Vector<T>;
  static constexpr size_t kBytes = 2 * kVectorBytes;

  static MPISTRAT_INLINE Pack<V> load(const char* from) {
    return {load_vector<V>(from), load_vector<V>(from + kVectorBytes)};
  }

  static MPISTRAT_INLINE void store(char* to, const Pack<V>& pack) {
    store_vector(to, pack.first);
    store_vector(to + kVectorBytes, pack.second);
  }
};

// Bytes that are made 0 or 1 first, so that the logical operations are the bitwise ones.
struct Bool : Native<uint8_t> {
  static MPISTRAT_INLINE V truth(const V& bytes) { return V(bytes != 0) & 1; }

  static MPISTRAT_INLINE Pack<V> load(const char* from) {
    const Pack<V> pack = Native<uint8_t>::load(from);
    return {truth(pack.first), truth(pack.second)};
  }
};

// Real parts in the first vector, imaginary parts in the second; for products.
template <class T>
struct Complex {
  struct Element {
    T real, imaginary;
  };
  using Lane = T;
  using V = Vector<T>;
  static constexpr size_t kBytes = 2 * kVectorBytes;
  static constexpr size_t kLanes = kVectorBytes / sizeof(T);

  static MPISTRAT_INLINE Pack<V> load(const char* from) {
    T parts[2 * kLanes], real[kLanes], imaginary[kLanes];
    std::memcpy(parts, from, kBytes);
    for (size_t i = 0; i < kLanes; ++i) {
      real[i] = parts[2 * i];
      imaginary[i] = parts[2 * i + 1];
    }
    Pack<V> pack;
    std::memcpy(&pack.first, real, kVectorBytes);
    std::memcpy(&pack.second, imaginary, kVectorBytes);
    return pack;
  }

  static MPISTRAT_INLINE void store(char* to, const Pack<V>& pack) {
    T parts[2 * kLanes];
    for (size_t i = 0; i < kLanes; ++i) {
      parts[2 * i] = pack.first[i];
      parts[2 * i + 1] = pack.second[i];
    }
    std::memcpy(to, parts, kBytes);
  }
};
