#ifndef MPISTRAT_SHM_WAYS_H_
#define MPISTRAT_SHM_WAYS_H_

// By which of two ways long private arrays are reduced: by slots, or from where they are, read by
// the kernel (remote.h).
//
// What is faster depends on how far apart the ranks' processors are, which no table of processors
// knows. Measured on one AMD EPYC, 2 ranks, 16 MiB of float32: 3.3 ms by slots and 4.6 ms by the
// kernel where the two processors share a cache, 10.5 ms and 4.5 ms where they do not. So each rank
// times its own calls, by powers of two of their bytes. Now and then a call asks all ranks what
// they would like; they go by the kernel from then on if all would. Asking costs two steps, which
// calls by slots are spared in between: 20 of 110 us at 1 MiB.

#include <algorithm>
#include <array>
#include <cstdint>

namespace mpistrat {

class Ways {
 public:
  // What a rank does in a call.
  struct Plan {
    bool asks;         // all ranks; else it goes by slots
    bool would_read;   // this rank's answer
    bool is_decision;  // what is agreed on holds for the calls that follow
  };

  // Plan a call of `nbytes`. The first calls go both ways, and now and then the other way is tried
  // again. All ranks have counted alike, and so ask in the same calls.
  Plan plan(int64_t nbytes) const {
    const Size& size = sizes_[index_of(nbytes)];
    const int64_t number = size.num_calls;
    if (number < 2 * kFirstTries) return {true, number % 2 == 0, false};
    const bool is_faster = size.ns[kRead] < size.ns[kSlots];
    if (number % kTryEvery == 0) return {true, !size.reads, false};
    const bool is_decision = number == 2 * kFirstTries || number % kDecideEvery == 1;
    return {is_decision || size.reads, is_faster, is_decision};
  }

  // All ranks are in this call: what only one rank called, or with other arrays, does not count.
  void count(int64_t nbytes) { ++sizes_[index_of(nbytes)].num_calls; }

  // All ranks have agreed on this way.
  void decide(int64_t nbytes, bool reads) { sizes_[index_of(nbytes)].reads = reads; }

  // A call took so long.
  void note(int64_t nbytes, bool was_read, uint64_t ns) {
    uint64_t& known = sizes_[index_of(nbytes)].ns[was_read ? kRead : kSlots];
    known = known == 0 ? ns : std::min(ns, known + (known >> kSlowness));
  }

 private:
  enum { kSlots, kRead };
  static constexpr int64_t kFirstTries = 2, kDecideEvery = 16, kTryEvery = 64;
  static constexpr int kSlowness =
      2;  // one slow call is chance; several make it slower by a quarter

  struct Size {
    int64_t num_calls = 0;
    uint64_t ns[2] = {};
    bool reads = false;  // what was agreed on last
  };

  static size_t index_of(int64_t nbytes) {
    size_t index = 0;
    while (nbytes >>= 1) ++index;
    return index;
  }

  std::array<Size, 64> sizes_;
};

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_WAYS_H_
