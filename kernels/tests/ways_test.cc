// Two ranks that choose between slots and reading (ways.h), and what the choice rests on.

#include "../shm/ways.h"

#include "check.h"

namespace {

constexpr int64_t kBytes = 3 << 20;

struct Times {
  uint64_t by_slots, read;
};

// Two ranks, of which one may find other times than the other. They meet in every call.
struct Pair {
  mpistrat::Ways ranks[2];
  int num_asked = 0;

  bool call(Times first, Times second, int64_t nbytes = kBytes) {
    mpistrat::Ways::Plan plans[2] = {ranks[0].plan(nbytes), ranks[1].plan(nbytes)};
    CHECK(plans[0].asks == plans[1].asks && plans[0].is_decision == plans[1].is_decision);
    const bool reads = plans[0].asks && plans[0].would_read && plans[1].would_read;
    num_asked += plans[0].asks;
    const Times times[2] = {first, second};
    for (int rank = 0; rank < 2; ++rank) {
      ranks[rank].count(nbytes);
      if (plans[rank].is_decision) ranks[rank].decide(nbytes, reads);
      ranks[rank].note(nbytes, reads, reads ? times[rank].read : times[rank].by_slots);
    }
    return reads;
  }

  bool call(Times both) { return call(both, both); }

  int count_reads(int num_calls, Times first, Times second) {
    int count = 0;
    for (int i = 0; i < num_calls; ++i) count += call(first, second);
    return count;
  }
};

constexpr Times kSlotsAreFaster{10, 30}, kReadingIsFaster{100, 30};

void the_first_calls_go_both_ways_then_the_faster_one() {
  Pair pair;
  CHECK(pair.call(kSlotsAreFaster) && !pair.call(kSlotsAreFaster));
  CHECK(pair.call(kSlotsAreFaster) && !pair.call(kSlotsAreFaster));
  CHECK(pair.count_reads(124, kSlotsAreFaster, kSlotsAreFaster) == 1);  // now and then a try
}

void slots_are_seldom_asked_about() {
  Pair pair;
  pair.count_reads(64, kSlotsAreFaster, kSlotsAreFaster);
  pair.num_asked = 0;
  pair.count_reads(64, kSlotsAreFaster, kSlotsAreFaster);
  CHECK(pair.num_asked == 5);  // one try and four decisions
}

void what_has_become_slow_is_left_and_found_again() {
  Pair pair;
  pair.count_reads(64, kSlotsAreFaster, kSlotsAreFaster);
  pair.count_reads(32, kReadingIsFaster, kReadingIsFaster);
  CHECK(pair.count_reads(8, kReadingIsFaster, kReadingIsFaster) == 8);
  pair.count_reads(128, kSlotsAreFaster, kSlotsAreFaster);
  CHECK(pair.count_reads(8, kSlotsAreFaster, kSlotsAreFaster) == 0);
}

void one_rank_alone_decides_for_slots() {
  Pair pair;
  CHECK(pair.count_reads(4, kReadingIsFaster, kSlotsAreFaster) == 2);
  CHECK(pair.count_reads(59, kReadingIsFaster, kSlotsAreFaster) == 0);
}

void calls_that_differ_do_not_count() {
  Pair pair;
  for (int i = 0; i < 10; ++i) (void)pair.ranks[i % 3 == 0].plan(kBytes);  // and then a mismatch
  CHECK(pair.call(kSlotsAreFaster) && !pair.call(kSlotsAreFaster));
}

void lengths_are_learned_one_by_one() {
  Pair pair;
  pair.count_reads(64, kSlotsAreFaster, kSlotsAreFaster);
  CHECK(pair.call(kSlotsAreFaster, kSlotsAreFaster, kBytes / 4));  // its first call
}

}  // namespace

int main() {
  the_first_calls_go_both_ways_then_the_faster_one();
  slots_are_seldom_asked_about();
  what_has_become_slow_is_left_and_found_again();
  one_rank_alone_decides_for_slots();
  calls_that_differ_do_not_count();
  lengths_are_learned_one_by_one();
}
