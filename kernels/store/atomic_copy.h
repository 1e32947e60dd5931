#ifndef MPISTRAT_STORE_ATOMIC_COPY_H_
#define MPISTRAT_STORE_ATOMIC_COPY_H_

// Copies from and to memory that is written while it is read: by atomic words, and at the ends by
// the largest units that are aligned there.
//
// Every load acquires and every store releases. So who has loaded any word of a change sees also
// the mark that was stored before it, in whichever order the marks are looked at afterwards.

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace mpistrat {

using Word = uint64_t;

// What the compilers may not take for another type's memory.
template <class Unit>
struct Aliased {
  typedef Unit type __attribute__((may_alias));
};

struct Loading {
  template <class Unit>
  static void copy(char* to, const char* shared) {
    const Unit unit = __atomic_load_n(reinterpret_cast<const typename Aliased<Unit>::type*>(shared),
                                      __ATOMIC_ACQUIRE);
    std::memcpy(to, &unit, sizeof unit);
  }
  static const char* shared(const char*, const char* from) { return from; }
};

struct Storing {
  template <class Unit>
  static void copy(char* shared, const char* from) {
    Unit unit;
    std::memcpy(&unit, from, sizeof unit);
    __atomic_store_n(reinterpret_cast<typename Aliased<Unit>::type*>(shared), unit,
                     __ATOMIC_RELEASE);
  }
  static const char* shared(const char* to, const char*) { return to; }
};

// One unit if it leads to a larger alignment, or is what is left.
template <class Direction, class Unit>
inline void copy_unit(char*& to, const char*& from, size_t& nbytes, bool is_head) {
  const bool is_odd =
      (reinterpret_cast<uintptr_t>(Direction::shared(to, from)) & sizeof(Unit)) != 0;
  if (nbytes < sizeof(Unit) || (is_head && !is_odd)) return;
  Direction::template copy<Unit>(to, from);
  to += sizeof(Unit), from += sizeof(Unit), nbytes -= sizeof(Unit);
}

template <class Direction>
inline void copy_words(char* to, const char* from, size_t nbytes) {
  copy_unit<Direction, uint8_t>(to, from, nbytes, true);
  copy_unit<Direction, uint16_t>(to, from, nbytes, true);
  copy_unit<Direction, uint32_t>(to, from, nbytes, true);
  const size_t words = nbytes / sizeof(Word) * sizeof(Word);
  for (size_t at = 0; at < words; at += sizeof(Word)) {
    Direction::template copy<Word>(to + at, from + at);
  }
  to += words, from += words, nbytes -= words;
  copy_unit<Direction, uint32_t>(to, from, nbytes, false);
  copy_unit<Direction, uint16_t>(to, from, nbytes, false);
  copy_unit<Direction, uint8_t>(to, from, nbytes, false);
}

// `from` is shared.
inline void load(char* to, const char* from, size_t nbytes) {
  copy_words<Loading>(to, from, nbytes);
}

// `to` is shared.
inline void store(char* to, const char* from, size_t nbytes) {
  copy_words<Storing>(to, from, nbytes);
}

}  // namespace mpistrat

#endif  // MPISTRAT_STORE_ATOMIC_COPY_H_
