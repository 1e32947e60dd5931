#ifndef MPISTRAT_SHM_REDUCTION_ALGORITHM_CHOICE_H_
#define MPISTRAT_SHM_REDUCTION_ALGORITHM_CHOICE_H_

// Choose how private arrays are reduced, by timing: through slots; through slots that are written
// past the caches; or, by two ranks, by reading the other's array (peer_read/peer_memory.h).
//
// What is faster depends on how far apart the ranks' processors are, which no table of processors
// knows. Measured on AMD EPYCs, float32, 2 ranks and 4, where the two processors share a cache and
// where they do not, us:
//
//                    near: 4 KiB  64 KiB  1 MiB  16 MiB   apart: 4 KiB  64 KiB  1 MiB  16 MiB
//   slots                    0.4     4.6     48    1500            2.4      35    175    3000
//   past the caches          0.9      11     84    2280            0.8      10     70    1300
//   read                                     99    1770                           400    1900
//
// 4 ranks on the two processors:  64 KiB  1 MiB  16 MiB                 64 KiB  1 MiB  16 MiB
//   slots                             22    265    5900                     75   1200   18000
//   past the caches                   23    430    9000                     37    420    6900
//
// (Apart, a slot's lines are in the other processor's cache when they are written again: each has
// to be fetched from there first, which costs more than memory does.) So each rank times its own
// calls, by powers of two of their bytes; of short ones, which would feel the clock, some. Which
// slots it writes past the caches concerns nobody else. Whether to read does, which only two ranks
// gain from: now and then a call asks what both would like, and they go by the kernel from then on
// if both would. Asking costs two steps, which calls by slots are spared in between: 20 of 110 us
// at 1 MiB.

#include <algorithm>
#include <array>
#include <cstdint>

namespace mpistrat {

class AlgorithmChoice {
 public:
  enum Algorithm { kSlots, kStreamed, kRead, kNumAlgorithms };

  // What a rank does in a call.
  struct Plan {
    bool asks;           // all ranks; else it goes by slots
    bool would_read;     // this rank's answer
    bool is_decision;    // what is agreed on holds for the calls that follow
    bool streams_slots;  // writes them past the caches, if it goes by slots
    bool is_timed;       // the call is to be noted
  };

  // Plan a call of `nbytes`. The first calls try all algorithms, each twice in a row, since caches
  // hold what the call before has left there; now and then another one is tried again, soon at
  // first: the first calls may have found new memory, whose pages cost more than the call. All
  // ranks have counted alike, and so ask in the same calls.
  Plan plan(int64_t nbytes, bool can_read) const {
    const Size& size = sizes_[index_of(nbytes)];
    const int64_t number = size.num_calls;
    if (number < kNumAlgorithms * kFirstTries) return trial(size, number / kFirstTries, can_read);
    const bool is_timed = nbytes >= kLongBytes || number % kTimeEvery == kTimeEvery / 2;
    const bool is_faster = size.ns[kRead] < size.ns[by_slots(size)];
    if (is_try(number)) {
      const bool is_other = !can_read || turn_of(number) % 2 == 1;
      const int other = by_slots(size) == kStreamed ? kSlots : kStreamed;
      return trial(size, size.reads ? (is_other ? kStreamed : kSlots) : (is_other ? other : kRead),
                   can_read);
    }
    const bool is_decision =
        can_read && (number == kNumAlgorithms * kFirstTries || number % kDecideEvery == 1);
    return {is_decision || size.reads, is_faster, is_decision, by_slots(size) == kStreamed,
            is_timed};
  }

  // All ranks are in this call: what only one rank called, or with other arrays, does not count.
  void count(int64_t nbytes) { ++sizes_[index_of(nbytes)].num_calls; }

  // All ranks have agreed on this.
  void decide(int64_t nbytes, bool reads) { sizes_[index_of(nbytes)].reads = reads; }

  // A call took so long.
  void note(int64_t nbytes, Algorithm algorithm, uint64_t ns) {
    uint64_t& known = sizes_[index_of(nbytes)].ns[algorithm];
    known = known == 0 ? ns : std::min(ns, known + (known >> kSlowness));
  }

 private:
  static constexpr int64_t kFirstTries = 2, kDecideEvery = 16, kTryEvery = 64;
  static constexpr int64_t kLongBytes = 64 << 10, kTimeEvery = 32;  // shorter arrays' calls
  // One slow call is chance, several in a row are not: each adds an eighth to its algorithm's time.
  // (A quarter lost one that was a fifth faster to one slow call, until the next try.)
  static constexpr int kSlowness = 3;

  struct Size {
    int64_t num_calls = 0;
    uint64_t ns[kNumAlgorithms] = {};
    bool reads = false;  // what was agreed on last
  };

  // Call 8, 16 and 32, and every 64th.
  static bool is_try(int64_t number) {
    return number % kTryEvery == 0 || (number & (number - 1)) == 0;
  }
  static int64_t turn_of(int64_t number) {
    return number < kTryEvery ? __builtin_ctzll(number) : number / kTryEvery + 1;
  }

  // The faster kind of slots. Past the caches has to be an eighth faster: where it pays at all it
  // is more than that, and so chance does not choose it.
  static Algorithm by_slots(const Size& size) {
    return size.ns[kStreamed] < size.ns[kSlots] - size.ns[kSlots] / 8 ? kStreamed : kSlots;
  }

  // Use one algorithm, once. A rank that cannot read uses slots.
  static Plan trial(const Size& size, int64_t algorithm, bool can_read) {
    if (algorithm == kRead && can_read) return {true, true, false, false, true};
    return {false, false, false,
            algorithm == kRead ? by_slots(size) == kStreamed : algorithm == kStreamed, true};
  }

  static size_t index_of(int64_t nbytes) {
    size_t index = 0;
    while (nbytes >>= 1) ++index;
    return index;
  }

  std::array<Size, 64> sizes_;
};

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_REDUCTION_ALGORITHM_CHOICE_H_
