#ifndef MPISTRAT_SHM_PEER_READ_READ_CHOICE_H_
#define MPISTRAT_SHM_PEER_READ_READ_CHOICE_H_

// Choose how data is moved that no rank's own time tells the cost of: through slots, or by reading
// the others' arrays. In a broadcast through slots the root is done first, and waits in its next
// call; so what is timed are calls of one kind and size that follow each other, from one's begin to
// the next one's.
//
// Rank 0 does that, eight calls at a time, and decides for all: its word for the next eight is in
// shared memory before the last of these begins, and the others read it when they are done with
// that. Where other calls come in between, nothing is known, and sizes decide (default_tuning.h).

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "../../common/clock.h"
#include "mpistrat/shm.h"

namespace mpistrat {

class ReadChoice {
 public:
  static constexpr int kSizes = 16;  // powers of two from kLeastBytes on
  // Whether the next calls go the other way than sizes say, by kind and size; rank 0 writes it.
  using Decisions = std::atomic<uint8_t>[MPISTRAT_NUM_KINDS][kSizes];

  // `decides`: this is rank 0. `clock` tells nanoseconds.
  ReadChoice(Decisions* decisions, bool decides, uint64_t (*clock)() = now_ns)
      : decisions_(decisions), decides_(decides), clock_(clock) {}

  // A call begins, of whatever kind.
  void begin_call() {
    ++calls_;
    planned_ = nullptr;
  }

  // Return whether a call reads arrays, of which the longest block has `nbytes`; by its size it
  // would if `is_long`. The same on all ranks.
  bool plan(int kind, int64_t nbytes, bool is_long) {
    const int index = index_of(nbytes);
    if (index < 0) return is_long;
    planned_ = &sizes_[kind][index];
    std::atomic<uint8_t>& decision = (*decisions_)[kind][index];
    const int64_t number = planned_->num_calls % kGroup;
    if (number == 0) planned_->is_other = decision.load(std::memory_order_acquire);
    if (decides_ && watch(planned_, number))
      decision.store(planned_->next(), std::memory_order_release);
    return is_long != planned_->is_other;
  }

  // All ranks are in the call that was planned last.
  void count() {
    if (planned_) ++planned_->num_calls;
  }

 private:
  static constexpr int64_t kLeastBytes = 16 << 10;
  static constexpr int64_t kGroup = 8;         // calls
  static constexpr uint64_t kFirstGroups = 4;  // which go both ways in turn
  // The slower way is tried again after 8 groups, then 16, 32, and each 64; after more where that
  // would cost above 1 %.
  static constexpr uint64_t kFirstTry = 8, kTryAfter = 64, kMostCost = 128;

  struct Size {
    int64_t num_calls = 0;
    bool is_other = false;
    // Of rank 0.
    uint64_t num_groups = 0, next_try = 0, try_after = kFirstTry;  // groups that were timed
    uint64_t began_ns = 0, ns[2] = {};
    // The call of the group that began last, and its number among all. No other one, nor one that
    // the ranks did not make alike, came between those of the group if it is whole.
    int64_t last = 0;
    uint64_t last_call = 0;
    bool is_whole = false;

    void note(uint64_t took) {
      uint64_t& known = ns[is_other];
      known = known == 0 ? took : std::min(took, known + (known >> 3));
      ++num_groups;
    }
    // The other way has to be an eighth faster.
    bool next() {
      const bool is_better = ns[1] != 0 && ns[1] < ns[0] - ns[0] / 8;
      if (!is_whole) return is_better;
      if (num_groups < kFirstGroups) return num_groups % 2 == 1;
      const bool tries = num_groups == next_try;
      if (tries || num_groups == kFirstGroups) {
        const uint64_t best = std::max<uint64_t>(ns[is_better], 1);
        const uint64_t worse = std::max(ns[!is_better], best) - best;
        next_try = num_groups + std::max(try_after, kMostCost * worse / best);
        try_after = std::min(2 * try_after, kTryAfter);
      }
      return is_better != tries;
    }
  };

  // Time a group; returns whether it ends with this call.
  bool watch(Size* size, int64_t number) {
    const uint64_t now = clock_();
    if (number == 0) size->began_ns = now;
    const bool is_next = size->last + 1 == number && size->last_call + 1 == calls_;
    size->is_whole = number == 0 || (size->is_whole && is_next);
    size->last = number;
    size->last_call = calls_;
    if (number < kGroup - 1) return false;
    if (size->is_whole) size->note((now - size->began_ns) / (kGroup - 1));
    return true;
  }

  static int index_of(int64_t nbytes) {
    int index = -1;
    for (int64_t least = kLeastBytes; least <= nbytes && index < kSizes - 1; least *= 2) ++index;
    return index;
  }

  Decisions* decisions_;
  bool decides_;
  uint64_t (*clock_)();
  std::array<std::array<Size, kSizes>, MPISTRAT_NUM_KINDS> sizes_;
  uint64_t calls_ = 0;
  Size* planned_ = nullptr;
};

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_PEER_READ_READ_CHOICE_H_
