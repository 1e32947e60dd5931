#ifndef MPISTRAT_STORE_STORE_HANDLE_H_
#define MPISTRAT_STORE_STORE_HANDLE_H_

// A process's handle on a store's memory, and its leases.

#include "layout.h"
#include "mpistrat/store.h"

// What a process needs to find its way in a store's memory.
struct MpistratStore {
  mpistrat::Layout layout;
  char* memory;

  mpistrat::Header* header() const { return reinterpret_cast<mpistrat::Header*>(memory); }

  mpistrat::State state() const {  // sequentially consistent
    return mpistrat::State::of(header()->state.load());
  }

  char* data(int buffer) const { return memory + layout.data_start(buffer); }

  // Of a buffer's blocks.
  mpistrat::Mark* marks(int buffer) const {
    return reinterpret_cast<mpistrat::Mark*>(memory + mpistrat::kStorePage) +
           static_cast<size_t>(buffer) * layout.num_blocks;
  }
};

namespace mpistrat {

// Of a lease's word.
inline uint64_t lease_word(uint64_t tag, int buffer) {
  return tag << 8 | static_cast<uint64_t>(buffer + 1);
}
inline int lease_buffer(uint64_t word) { return static_cast<int>(word & 0xff) - 1; }

// Bits of the buffers that are leased. Sequentially consistent: a lease that is not seen here was
// taken after all that the caller has stored before, and whoever took it will see that.
inline uint64_t leased(const Header& header) {
  uint64_t bits = 0;
  for (const auto& lease : header.leases) {
    const uint64_t word = lease.load();
    if (word != 0) bits |= uint64_t{1} << lease_buffer(word);
  }
  return bits;
}

}  // namespace mpistrat

#endif  // MPISTRAT_STORE_STORE_HANDLE_H_
