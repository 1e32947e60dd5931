#ifndef MPISTRAT_SHM_MOVEMENT_CHOICE_H_
#define MPISTRAT_SHM_MOVEMENT_CHOICE_H_

// Choose how data is moved where no rank's own time tells the cost: through slots, through slots
// that are written past the caches, or by reading the others' arrays. In a broadcast through slots
// the root is done first, and waits in its next call; so what is timed are calls of one kind and
// size that follow each other, from one's begin to the next one's.
//
// Rank 0 does that, a group of calls at a time, and decides for all: its word for the next group is
// in shared memory before the last call of this one begins, and the others read it when they are
// done with that. Where the program takes longer between its calls than in them, or other calls
// come in between, nothing is known, and sizes decide (default_tuning.h).

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "../common/clock.h"
#include "mpistrat/shm.h"

namespace mpistrat {

class MovementChoice {
 public:
  enum Way : uint8_t { kSlots, kStreamed, kRead, kNumWays };
  static constexpr int kSizes = 16;  // powers of two from kLeastBytes on
  // The way of the next calls, plus 1, by kind and size; rank 0 writes it. 0: as sizes say.
  using Decisions = std::atomic<uint8_t>[MPISTRAT_NUM_KINDS][kSizes];

  // `decides`: this is rank 0. `clock` tells nanoseconds.
  MovementChoice(Decisions* decisions, bool decides, uint64_t (*clock)() = now_ns)
      : decisions_(decisions), decides_(decides), clock_(clock) {
    for (auto& sizes : sizes_)
      for (int index = 0; index < kSizes; ++index) sizes[index].length = group_length(index);
  }

  // A call begins, of whatever kind.
  void begin_call() {
    ++calls_;
    planned_ = nullptr;
  }

  // The call that began last is done.
  void end_call() {
    if (planned_ && planned_->is_timed) ended_ns_ = clock_();
  }

  // Return the way of a call whose longest block has `nbytes`, which by its size goes by `usual`.
  // The same on all ranks, if the arguments are.
  Way plan(int kind, int64_t nbytes, Way usual, bool may_read) {
    const int index = index_of(nbytes);
    if (index < 0) return usual;
    planned_ = &sizes_[kind][index];
    std::atomic<uint8_t>& decision = (*decisions_)[kind][index];
    const int64_t number = planned_->num_calls % planned_->length;
    if (number == 0) planned_->decision = decision.load(std::memory_order_acquire);
    const int decided = planned_->decision - 1;
    const bool is_usual = decided < 0 || (decided == kRead && !may_read);
    const Way way = is_usual ? usual : static_cast<Way>(decided);
    if (decides_ && watch(planned_, number, way, usual, may_read))
      decision.store(planned_->next(usual, may_read) + 1, std::memory_order_release);
    return way;
  }

  // All ranks are in the call that was planned last.
  void count() {
    if (planned_) ++planned_->num_calls;
  }

 private:
  static constexpr int64_t kLeastBytes = 4 << 10;
  // Calls of a group: fewer of longer blocks, whose times vary less, and whose tries cost more.
  static constexpr int64_t group_length(int index) {
    const int64_t nbytes = kLeastBytes << index;
    return nbytes < 512 << 10 ? 8 : nbytes < 4 << 20 ? 4 : 2;
  }
  // Groups that go each way, in turn; but one of a way that took half as much again as the fastest.
  static constexpr uint64_t kFirstTries = 2;
  // Of the way that was chosen one group in so many is timed.
  static constexpr uint64_t kTimeEvery = 8;
  // A slower way is tried again after 8 groups, then 16, 32, and each 64; after more where that
  // would cost above 1 %.
  static constexpr uint64_t kFirstTry = 8, kTryAfter = 64, kMostCost = 128;
  // Where times have changed all ways are tried again, but not sooner than so many groups after the
  // last time; twice as many each time that it changes nothing.
  static constexpr uint64_t kFirstPause = 64, kLongestPause = 4096;

  // What is known of calls of a kind and size. All ranks count them; rank 0 knows the rest.
  struct Size {
    int64_t num_calls = 0, length = 0;  // of a group
    uint8_t decision = 0;
    struct {
      uint64_t ns = 0, num_groups = 0, next_try = 0, try_after = kFirstTry;
      bool was_slow = false;
    } ways[kNumWays];
    uint64_t next_reset = 0, pause = kFirstPause;
    Way best_before = kNumWays;
    // The group under way: when it began, the time between its calls, and of its last call the
    // number in it and among all. It is whole if no other call, nor one that the ranks did not make
    // alike, came in between.
    uint64_t began_ns = 0, gaps_ns = 0;
    int64_t last = 0;
    uint64_t last_call = 0;
    bool is_timed = false, is_whole = false;

    uint64_t group() const { return static_cast<uint64_t>(num_calls / length); }

    // Whether a way has had its first tries. The usual one may have been the first of all, in
    // memory that was new.
    bool is_tried(Way way, Way usual) const {
      uint64_t least = UINT64_MAX;
      for (const auto& one : ways)
        if (one.num_groups > 0) least = std::min(least, one.ns);
      const bool is_hopeless = way != usual && ways[way].ns > least + least / 2;
      return ways[way].num_groups >= (is_hopeless ? 1 : kFirstTries);
    }

    bool is_known(Way usual, bool may_read) const {
      for (Way way : {kSlots, kStreamed, kRead})
        if (!is_tried(way, usual) && (way != kRead || may_read)) return false;
      return true;
    }

    void note(Way way, uint64_t took, bool is_settled) {
      uint64_t& known = ways[way].ns;
      const bool is_slow = took > known + known / 2, is_fast = took + took / 2 < known;
      // Once may be chance. Processors that have moved apart, say, change the other ways, too.
      if (is_settled && (is_fast || (is_slow && ways[way].was_slow))) try_all();
      ways[way].was_slow = is_slow;
      known = known == 0 ? took : std::min(took, known + (known >> 3));
      ++ways[way].num_groups;
    }

    void try_all() {
      if (group() < next_reset) return;
      next_reset = group() + pause;
      pause = std::min(2 * pause, kLongestPause);
      for (auto& one : ways) {
        one.next_try = 1;
        one.try_after = kFirstTry;
      }
    }

    // Another way than the usual one has to be an eighth faster.
    Way best(Way usual, bool may_read) const {
      Way found = usual;
      uint64_t least = ways[usual].ns - ways[usual].ns / 8;
      for (Way way : {kSlots, kStreamed, kRead}) {
        const uint64_t ns = ways[way].ns;
        if (ns == 0 || ns >= least || (way == kRead && !may_read)) continue;
        found = way;
        least = ns;
      }
      return found;
    }

    // The way of the next group.
    Way next(Way usual, bool may_read) {
      const Way fastest = best(usual, may_read);
      if (!is_timed || !is_whole) return fastest;
      if (fastest != best_before) pause = kFirstPause;
      best_before = fastest;
      Way found = fastest;
      for (Way way : {usual, kSlots, kStreamed, kRead}) {
        if (way == kRead && !may_read) continue;
        if (ways[way].num_groups < ways[found].num_groups && !is_tried(way, usual)) found = way;
      }
      if (!is_tried(found, usual)) return found;
      for (Way way : {kSlots, kStreamed, kRead})
        if (way != fastest && (way != kRead || may_read) && is_due(way, fastest)) return way;
      return fastest;
    }

    bool is_due(Way way, Way fastest) {
      auto& one = ways[way];
      const bool is_due = one.next_try != 0 && group() >= one.next_try;
      if (one.next_try == 0 || is_due) {
        const uint64_t best = std::max<uint64_t>(ways[fastest].ns, 1);
        const uint64_t worse = std::max(one.ns, best) - best;
        // One time alone may have been chance.
        const uint64_t pause = one.num_groups < kFirstTries ? 0 : kMostCost * worse / best;
        one.next_try = group() + std::max(one.try_after, pause);
        one.try_after = std::min(2 * one.try_after, kTryAfter);
      }
      return is_due;
    }
  };

  // Time a group, if it is to be; returns whether it ends with this call.
  bool watch(Size* size, int64_t number, Way way, Way usual, bool may_read) {
    if (number == 0) {
      const bool is_try = way != size->best(usual, may_read) || !size->is_known(usual, may_read);
      size->is_timed = is_try || size->group() % kTimeEvery == 0;
      size->gaps_ns = 0;
      if (size->is_timed) size->began_ns = clock_();
    }
    const bool is_next = size->last + 1 == number && size->last_call + 1 == calls_;
    size->is_whole = number == 0 || (size->is_whole && is_next);
    size->last = number;
    size->last_call = calls_;
    if (size->is_timed && size->is_whole && number > 0)
      time_gap(size, number, way, size->is_known(usual, may_read));
    return number == size->length - 1;
  }

  // Add the time between the last call and this one; at the end of the group, note its way's.
  void time_gap(Size* size, int64_t number, Way way, bool is_settled) {
    const uint64_t now = clock_();
    size->gaps_ns += now - ended_ns_;
    if (number < size->length - 1) return;
    const uint64_t took = now - size->began_ns;
    size->is_whole = 2 * size->gaps_ns <= took;
    if (size->is_whole) size->note(way, took / static_cast<uint64_t>(size->length - 1), is_settled);
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
  uint64_t calls_ = 0, ended_ns_ = 0;
  Size* planned_ = nullptr;
};

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_MOVEMENT_CHOICE_H_
