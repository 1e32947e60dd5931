// Several elements in one access of up to 16 bytes, the widest that a GPU has.
#pragma once
#include "elements.cuh"

namespace mpistrat {

constexpr int kAccessBytes = 16;

// As many elements as one access has.
template <class T>
constexpr int kPackOf = kAccessBytes / static_cast<int>(sizeof(T));

// Packs of more than 16 bytes are several accesses.
template <class T, int N>
struct Pack {
  static constexpr int kBytes = static_cast<int>(N * sizeof(T));
  static constexpr int kAlignment = kBytes < kAccessBytes ? kBytes : kAccessBytes;
  static constexpr int kAccesses = kBytes / kAlignment;
  typedef typename Word<kAlignment>::type Access;

  T of[N];
};

// Arrays of packs of N that are on their way into registers at once: fewer of bytes, as each is
// computed with in a register of its own.
template <int N>
constexpr int kArraysAtOnce = N > 8 ? 2 : 4;

// `at` counts elements, and is at a boundary of packs in memory.
template <int N, class T>
MPISTRAT_DEVICE Pack<T, N> load_pack(const T* from, u64 at) {
  typedef typename Pack<T, N>::Access Access;
  const Access* words = reinterpret_cast<const Access*>(from + at);
  Pack<T, N> pack;
  MPISTRAT_UNROLL
  for (int i = 0; i < Pack<T, N>::kAccesses; ++i) {
    const Access word = words[i];
    MPISTRAT_COPY(reinterpret_cast<u8*>(&pack) + i * sizeof word, &word, sizeof word);
  }
  return pack;
}

template <int N, class T>
MPISTRAT_DEVICE void store_pack(T* to, u64 at, const Pack<T, N>& pack) {
  typedef typename Pack<T, N>::Access Access;
  Access* words = reinterpret_cast<Access*>(to + at);
  MPISTRAT_UNROLL
  for (int i = 0; i < Pack<T, N>::kAccesses; ++i) {
    Access word;
    MPISTRAT_COPY(&word, reinterpret_cast<const u8*>(&pack) + i * sizeof word, sizeof word);
    store_word(words + i, word);
  }
}

// Whether arrays that are read and written together have packs at the same places. Boundaries that
// do not coincide leave no packs: then every element is taken by itself.
template <int N>
class Alignment {
 public:
  // The array whose packs need the most elements to come round to a boundary again.
  template <class T>
  MPISTRAT_DEVICE explicit Alignment(const T* array)
      : head_((N - elements_past<T>(array)) % N), coincide_(true) {
    static_assert(kPeriod<T> == N, "the first array decides where packs begin");
  }

  template <class T>
  MPISTRAT_DEVICE void add(const T* array) {
    coincide_ = coincide_ && elements_past<T>(array + head_) == 0;
  }

  // How many of `count` elements are before the first pack.
  MPISTRAT_DEVICE u64 head(u64 count) const { return coincide_ && head_ < count ? head_ : count; }

 private:
  // Packs of more than 16 bytes need no more alignment than that.
  template <class T>
  static constexpr u64 kPeriod = Pack<T, N>::kAlignment / sizeof(T);

  template <class T>
  static MPISTRAT_DEVICE u64 elements_past(const T* array) {
    return reinterpret_cast<u64>(array) / sizeof(T) & (kPeriod<T> - 1);  // a power of two
  }

  u64 head_;
  bool coincide_;
};

// The thread's number in the grid, and how many there are.
MPISTRAT_DEVICE u64 grid_thread() {
  return static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x;
}
MPISTRAT_DEVICE u64 grid_threads() { return static_cast<u64>(gridDim.x) * blockDim.x; }

// Call body.element(i), or body.pack(i) for N at once, for each of `count` elements once, by
// `threads` threads of which this is number `thread`. The first `head` are taken one by one.
template <int N, class Body>
MPISTRAT_DEVICE void for_each_pack(u64 count, u64 head, u64 thread, u64 threads, const Body& body) {
  const u64 packs = (count - head) / N, tail = head + packs * N;
  MPISTRAT_NO_UNROLL
  for (u64 i = thread; i < packs; i += threads) body.pack(head + i * N);
  MPISTRAT_NO_UNROLL
  for (u64 i = thread; i < head; i += threads) body.element(i);
  MPISTRAT_NO_UNROLL
  for (u64 i = tail + thread; i < count; i += threads) body.element(i);
}

}  // namespace mpistrat
