// Store packs of results, and prefetch. Part of impl_kernel_table.h: no include guard.

constexpr size_t kAhead = 2048;  // how far memory is fetched before it is used

// The arithmetic on halves keeps so many instructions in flight that few loads and stores are: ask
// for a pack at `at` in time. Never for what lies behind the end, where another rank may be
// writing. What needs no arithmetic but the reduction's would only be slower: 512 KiB of float32 in
// 21 us, and in 17 without, on one AMD EPYC.
template <class Codec, int kIsWritten>
MPISTRAT_INLINE void prefetch(const char* data, size_t at, size_t end) {
  if (at + Codec::kBytes > end) return;
  for (size_t line = 0; line < Codec::kBytes; line += 64)
    __builtin_prefetch(data + at + line, kIsWritten);
}

// One place, through the caches.
template <class Codec>
struct OnePlace {
  static constexpr bool kFetches = sizeof(typename Codec::Element) < sizeof(typename Codec::Lane);

  char* to;

  MPISTRAT_INLINE void put(size_t at, const Pack<typename Codec::V>& pack) const {
    Codec::store(to + at, pack);
  }
  MPISTRAT_INLINE void fetch(size_t at, size_t end) const {
    if (kFetches) prefetch<Codec, 1>(to, at, end);
  }
};

// Two places through the caches, or one or two past them. A pack goes to both at once: while the
// stores are on their way, the next packs are computed. Measured on one AMD EPYC, 8 MiB to two
// places past the caches, us: float32, float16 and bfloat16 660, 645 and 664; in blocks of 4 KiB,
// each copied once it was there, 646, 772 and 679. 1 MiB through the caches, to places that lie
// differently in their lines: 45, 50 and 49, and 54, 62 and 58. Nothing is fetched ahead, as stores
// are the bound.
template <class Codec, bool kIsPast>
struct Places {
  static constexpr bool kFetches = false;

  char* first;
  char* second;  // null if there is none

  MPISTRAT_INLINE void put(size_t at, const Pack<typename Codec::V>& pack) const {
    alignas(kVectorBytes) char bytes[Codec::kBytes];
    Codec::store(bytes, pack);
    store(first + at, bytes);
    if (!kIsPast || second) store(second + at, bytes);
  }
  MPISTRAT_INLINE void fetch(size_t, size_t) const {}

 private:
  // Past the caches 16 bytes at a time: wider stores would need more alignment and are no faster.
  static MPISTRAT_INLINE void store(char* to, const char* bytes) {
#if defined(__x86_64__)
    if (kIsPast) {
      for (size_t i = 0; i < Codec::kBytes; i += sizeof(__m128i)) {
        const __m128i part = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + i));
        _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), part);
      }
      return;
    }
#endif
    std::memcpy(to, bytes, Codec::kBytes);
  }
};
