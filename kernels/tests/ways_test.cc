// Two ranks that choose between two kinds of slots and reading (ways.h).

#include "../shm/ways.h"

#include <utility>

#include "check.h"

namespace {

constexpr int64_t kBytes = 3 << 20;

using mpistrat::Ways;

struct Times {
  uint64_t by_slots, past, read;
};

// Two ranks, of which one may find other times than the other. They meet in every call.
struct Pair {
  Ways ranks[2];
  bool can_read = true;
  int num_asked = 0, num_timed = 0;

  // The way that rank 0 goes.
  Ways::Way call(Times first, Times second, int64_t nbytes = kBytes) {
    Ways::Plan plans[2] = {ranks[0].plan(nbytes, can_read), ranks[1].plan(nbytes, can_read)};
    CHECK(plans[0].asks == plans[1].asks && plans[0].is_decision == plans[1].is_decision);
    CHECK(can_read || !plans[0].asks);
    const bool reads = plans[0].asks && plans[0].would_read && plans[1].would_read;
    num_asked += plans[0].asks;
    const Times times[2] = {first, second};
    Ways::Way ways[2];
    for (int rank = 0; rank < 2; ++rank) {
      const Ways::Way slots = plans[rank].goes_past ? Ways::kPast : Ways::kSlots;
      ways[rank] = reads ? Ways::kRead : slots;
      const uint64_t ns[] = {times[rank].by_slots, times[rank].past, times[rank].read};
      ranks[rank].count(nbytes);
      if (plans[rank].is_decision) ranks[rank].decide(nbytes, reads);
      num_timed += plans[rank].is_timed;
      if (plans[rank].is_timed) ranks[rank].note(nbytes, ways[rank], ns[ways[rank]]);
    }
    return ways[0];
  }

  Ways::Way call(Times both) { return call(both, both); }

  int count(Ways::Way way, int num_calls, Times first, Times second) {
    int count = 0;
    for (int i = 0; i < num_calls; ++i) count += call(first, second) == way;
    return count;
  }

  int count(Ways::Way way, int num_calls, Times both) { return count(way, num_calls, both, both); }
};

constexpr Times kSlotsAreFaster{1000, 2000, 3000}, kReadingIsFaster{10'000, 8000, 3000};
constexpr Times kPastIsFaster{10'000, 2000, 3000};

void the_first_calls_go_all_ways_then_the_fastest() {
  Pair pair;
  for (Ways::Way way : {Ways::kSlots, Ways::kPast, Ways::kRead})
    for (int i = 0; i < 2; ++i) CHECK(pair.call(kSlotsAreFaster) == way);
  CHECK(pair.count(Ways::kSlots, 26, kSlotsAreFaster) == 24);  // soon a try or two, and
  CHECK(pair.count(Ways::kSlots, 96, kSlotsAreFaster) == 94);  // then now and then
  for (Times times : {kPastIsFaster, kReadingIsFaster}) {
    Pair other;
    other.count(Ways::kSlots, 6, times);
    CHECK(other.count(times.past < times.read ? Ways::kPast : Ways::kRead, 26, times) == 24);
  }
}

void new_memory_in_the_first_calls_is_soon_made_up_for() {
  constexpr Times kNewMemory{90'000, 90'000, 90'000};
  for (Ways::Way way : {Ways::kSlots, Ways::kPast}) {
    const bool is_first = way == Ways::kSlots;
    const Times times = is_first ? Times{1000, 1500, 1500} : Times{1500, 1000, 1500};
    Pair pair;
    if (!is_first) pair.count(way, 2, times);
    pair.count(way, 2, kNewMemory);
    pair.count(way, is_first ? 7 : 5, times);
    CHECK(pair.count(way, 23, times) == 22);  // after call 8: 16 tries to read
    CHECK(pair.call(times) != way);           // 32
    CHECK(pair.count(way, 31, times) == 31);
  }
}

void one_slow_call_is_chance() {
  Pair pair;
  constexpr Times kClose{1000, 1200, 1200}, kDisturbed{4000, 1200, 1200};
  pair.count(Ways::kSlots, 66, kClose);
  for (int i = 0; i < 3; ++i) {
    CHECK(pair.call(kDisturbed) == Ways::kSlots);
    CHECK(pair.count(Ways::kSlots, 8, kClose) == 8);
  }
}

void both_others_are_tried_again() {
  for (Times times : {kSlotsAreFaster, kPastIsFaster, kReadingIsFaster}) {
    Pair pair;
    pair.count(Ways::kSlots, 64, times);
    int tried[Ways::kNumWays] = {};
    for (int i = 0; i < 128; ++i) ++tried[pair.call(times)];
    for (int count : tried) CHECK(count == 1 || count == 126);
  }
}

void slots_are_seldom_asked_about() {
  Pair pair;
  pair.count(Ways::kRead, 64, kSlotsAreFaster);
  pair.num_asked = 0;
  pair.count(Ways::kRead, 128, kSlotsAreFaster);
  CHECK(pair.num_asked == 9);  // one try and eight decisions
}

void who_cannot_read_is_not_asked() {
  Pair pair;
  pair.can_read = false;
  CHECK(pair.count(Ways::kRead, 200, kReadingIsFaster) == 0);
  CHECK(pair.count(Ways::kPast, 10, kReadingIsFaster) == 10);
}

void ranks_that_cannot_read_choose_each_for_itself() {
  for (const auto& [first, second] :
       {std::pair(kPastIsFaster, kSlotsAreFaster), std::pair(kSlotsAreFaster, kPastIsFaster)}) {
    Pair pair;
    pair.can_read = false;
    pair.count(Ways::kSlots, 64, first, second);
    const Ways::Way way = first.past < first.by_slots ? Ways::kPast : Ways::kSlots;
    CHECK(pair.count(way, 32, first, second) == 31);  // and a try
  }
}

void what_has_become_slow_is_left_and_found_again() {
  Pair pair;
  pair.count(Ways::kRead, 64, kSlotsAreFaster);
  pair.count(Ways::kRead, 32, kReadingIsFaster);
  CHECK(pair.count(Ways::kRead, 8, kReadingIsFaster) == 8);
  pair.count(Ways::kRead, 256, kSlotsAreFaster);
  CHECK(pair.count(Ways::kSlots, 8, kSlotsAreFaster) == 8);
  pair.count(Ways::kRead, 256, kPastIsFaster);
  CHECK(pair.count(Ways::kPast, 8, kPastIsFaster) == 8);
}

void one_rank_alone_decides_for_slots() {
  Pair pair;
  CHECK(pair.count(Ways::kRead, 6, kReadingIsFaster, kSlotsAreFaster) == 2);
  CHECK(pair.count(Ways::kRead, 57, kReadingIsFaster, kSlotsAreFaster) == 1);  // a try
}

void calls_that_differ_do_not_count() {
  Pair pair;
  for (int i = 0; i < 10; ++i) (void)pair.ranks[i % 3 == 0].plan(kBytes, true);  // then a mismatch
  for (Ways::Way way : {Ways::kSlots, Ways::kSlots, Ways::kPast})
    CHECK(pair.call(kSlotsAreFaster) == way);
}

void lengths_are_learned_one_by_one() {
  Pair pair;
  pair.count(Ways::kSlots, 65, kSlotsAreFaster);
  CHECK(pair.call(kSlotsAreFaster) == Ways::kSlots);
  for (Ways::Way way : {Ways::kSlots, Ways::kPast, Ways::kRead})  // the first calls of this length
    for (int i = 0; i < 2; ++i)
      CHECK(pair.call(kSlotsAreFaster, kSlotsAreFaster, kBytes / 4) == way);
}

void of_short_calls_some_are_timed() {
  Pair pair;
  for (int i = 0; i < 64; ++i) (void)pair.call(kPastIsFaster, kPastIsFaster, 4 << 10);
  pair.num_timed = 0;
  int past = 0;
  for (int i = 0; i < 64; ++i)
    past += pair.call(kPastIsFaster, kPastIsFaster, 4 << 10) == Ways::kPast;
  CHECK(pair.num_timed == 2 * 3);
  CHECK(past >= 63);
}

}  // namespace

int main() {
  of_short_calls_some_are_timed();
  the_first_calls_go_all_ways_then_the_fastest();
  new_memory_in_the_first_calls_is_soon_made_up_for();
  both_others_are_tried_again();
  slots_are_seldom_asked_about();
  who_cannot_read_is_not_asked();
  ranks_that_cannot_read_choose_each_for_itself();
  one_slow_call_is_chance();
  what_has_become_slow_is_left_and_found_again();
  one_rank_alone_decides_for_slots();
  calls_that_differ_do_not_count();
  lengths_are_learned_one_by_one();
}
