// The choice of how data is moved (movement_choice.h).

#include "../shm/movement_choice.h"

#include "helpers/check.h"

namespace {

using mpistrat::MovementChoice;
using Way = MovementChoice::Way;
constexpr Way kSlots = MovementChoice::kSlots, kStreamed = MovementChoice::kStreamed,
              kRead = MovementChoice::kRead;

uint64_t now = 1;

uint64_t fake_clock() { return now; }

struct Times {
  uint64_t slots, streamed, read;
};

constexpr int64_t kBytes = 256 << 10;
constexpr int kFirstCalls = 3 * 2 * 8;
constexpr Times kReadingIsFaster{1000, 1200, 500}, kSlotsAreFaster{1000, 2000, 2000};
constexpr Times kStreamedIsFaster{1000, 300, 700};

// Three ranks, which meet in every call.
struct Node {
  MovementChoice::Decisions decisions = {};
  MovementChoice ranks[3] = {{&decisions, true, fake_clock},
                             {&decisions, false, fake_clock},
                             {&decisions, false, fake_clock}};
  uint64_t spent = 0;
  Way usual = kSlots;
  bool may_read = true;

  // Return the way of a call. The ranks begin in any order.
  Way call(Times times, int kind = MPISTRAT_BCAST, int64_t nbytes = kBytes) {
    Way ways[3];
    for (int i = 0; i < 3; ++i) {
      const int rank = static_cast<int>((now + static_cast<uint64_t>(i)) % 3);
      ranks[rank].begin_call();
      ways[rank] = ranks[rank].plan(kind, nbytes, usual, may_read);
    }
    CHECK(ways[0] == ways[1] && ways[1] == ways[2]);
    const uint64_t ns[] = {times.slots, times.streamed, times.read};
    now += ns[ways[0]];
    spent += ns[ways[0]];
    for (MovementChoice& rank : ranks) rank.count();
    for (MovementChoice& rank : ranks) rank.end_call();
    return ways[0];
  }

  // A call that the ranks do not make alike.
  void mismatch() {
    for (MovementChoice& rank : ranks) {
      rank.begin_call();
      rank.plan(MPISTRAT_BCAST, kBytes, usual, may_read);
    }
    now += 70;
  }

  // A call that is not timed.
  void barrier() {
    for (MovementChoice& rank : ranks) rank.begin_call();
    now += 10;
  }

  int count(Way way, int num_calls, Times times, int64_t nbytes = kBytes) {
    int count = 0;
    for (int i = 0; i < num_calls; ++i) count += call(times, MPISTRAT_BCAST, nbytes) == way;
    return count;
  }
};

void the_first_groups_go_all_ways_then_the_fastest() {
  for (Way usual : {kSlots, kRead}) {
    for (Times times : {kReadingIsFaster, kSlotsAreFaster, kStreamedIsFaster}) {
      Node node;
      node.usual = usual;
      int counts[3] = {};
      for (int i = 0; i < kFirstCalls; ++i) {
        const Way way = node.call(times);
        CHECK(i >= 8 || way == usual);
        ++counts[way];
      }
      const Way fastest = times.read == 500 ? kRead : times.streamed == 300 ? kStreamed : kSlots;
      // Twice each, but once what took over 1.5 times as long.
      for (Way way : {kSlots, kStreamed, kRead})
        CHECK_AT(way == fastest ? counts[way] > 16 : counts[way] == (way == usual ? 16 : 8),
                 "way %d: %d", way, counts[way]);
      CHECK(node.count(fastest, 400, times) >= 400 - 5 * 8);
    }
  }
}

void ways_that_are_not_much_slower_are_tried_twice() {
  constexpr Times kAlike{1000, 1200, 900};
  Node node;
  int counts[3] = {};
  for (int i = 0; i < kFirstCalls; ++i) ++counts[node.call(kAlike)];
  CHECK(counts[kSlots] == 16 && counts[kStreamed] == 16 && counts[kRead] == 16);
}

void long_blocks_are_tried_in_few_calls() {
  Node node;
  node.usual = kRead;
  constexpr Times kTimes{1600, 2600, 1000};
  CHECK(node.count(kRead, 20, kTimes, 2 * kBytes) == 20 - 2 * 4);
  CHECK(node.count(kRead, 60, kTimes, 2 * kBytes) >= 60 - 2 * 4);
  CHECK(node.count(kRead, 10, kTimes, 16 * kBytes) == 10 - 2 * 2);
  CHECK(node.count(kRead, 30, kTimes, 16 * kBytes) >= 30 - 2 * 2);
}

void a_slow_start_is_no_sign_of_change() {
  constexpr Times kCold{5000, 5000, 5000};
  Node node;
  node.usual = kRead;
  node.count(kRead, 4, kCold);  // half a group
  CHECK(node.count(kRead, 84, kReadingIsFaster) >= 84 - 4 * 8);
  CHECK(node.count(kRead, 400, kReadingIsFaster) >= 400 - 5 * 8);
}

void one_slow_call_is_chance() {
  for (uint64_t factor : {3, 40, 200}) {
    Node node;
    bool is_first = true;
    int count = 0;
    for (int i = 0; i < 2000; ++i) {
      const Way way = node.call({1600, 2600, 1000}, MPISTRAT_BCAST, 64 * kBytes);
      if (way == kRead && is_first) now += factor * 1000;
      is_first = is_first && way != kRead;
      count += way == kRead;
    }
    CHECK_AT(count > 1800, "%d of 2000 after one that took %d times as long", count,
             static_cast<int>(factor));
  }
}

void who_cannot_read_never_does() {
  Node node, another;
  node.may_read = another.may_read = false;
  CHECK(node.count(kRead, 1000, kReadingIsFaster) == 0);
  CHECK(another.count(kRead, 2 * 2 * 8, kStreamedIsFaster) == 0);
  CHECK(another.count(kStreamed, 400, kStreamedIsFaster) >= 400 - 5 * 8);
}

void who_cannot_read_any_more_goes_the_usual_way() {
  Node node;
  node.count(kRead, 200, kReadingIsFaster);
  node.may_read = false;
  CHECK(node.call(kReadingIsFaster) == kSlots);
  CHECK(node.count(kRead, 1000, kReadingIsFaster) == 0);
}

void another_way_has_to_be_an_eighth_faster() {
  Node node, another;
  node.count(kSlots, kFirstCalls, {1000, 900, 950});
  CHECK(node.count(kSlots, 400, {1000, 900, 950}) >= 400 - 5 * 8);
  another.count(kSlots, kFirstCalls, {1000, 860, 950});
  CHECK(another.count(kStreamed, 400, {1000, 860, 950}) >= 400 - 5 * 8);
}

void what_was_slower_is_tried_again() {
  Node node;
  node.count(kSlots, kFirstCalls, kSlotsAreFaster);
  node.count(kSlots, 3000, kReadingIsFaster);
  CHECK(node.count(kRead, 1000, kReadingIsFaster) >= 1000 - 5 * 8);
  // And back: what was chosen has become slower.
  node.count(kSlots, 3000, kSlotsAreFaster);
  CHECK(node.count(kSlots, 1000, kSlotsAreFaster) >= 1000 - 5 * 8);
}

void processors_that_move_change_the_choice_soon() {
  constexpr Times kNear{17, 35, 60}, kApart{80, 17, 100};
  Node node;
  node.count(kSlots, 5000, kApart);
  for (int i = 0; i < 3; ++i) {
    node.count(kSlots, 400, kNear);
    CHECK(node.count(kSlots, 400, kNear) >= 400 - 6 * 8);
    node.count(kSlots, 5000, kNear);
    node.count(kStreamed, 400, kApart);
    CHECK(node.count(kStreamed, 400, kApart) >= 400 - 6 * 8);
    node.count(kStreamed, 5000, kApart);
  }
}

void irregular_gaps_between_calls_cost_little() {
  constexpr Times kTimes{1000, 2000, 20'000};
  uint64_t state = 1;
  const auto random = [&state] {
    return (state = state * 6364136223846793005u + 1442695040888963407u) >> 33;
  };
  for (int form = 0; form < 4; ++form) {
    Node node;
    node.count(kSlots, kFirstCalls, kTimes);
    node.spent = 0;
    constexpr int kCalls = 400'000;
    for (int i = 0; i < kCalls; ++i) {
      node.call(kTimes);
      if (form == 0) now += i / 160 % 2 * 10'000;             // by turns
      if (form == 1) now += random() % 10 == 0 ? 20'000 : 0;  // now and then
      if (form == 2) now += (random() % 64) * (random() % 64) * 10;
      if (form == 3) now += random() % 1500;  // up to the time of the call
    }
    CHECK_AT(node.spent < uint64_t{kCalls} * 1050, "form %d: %g", form,
             static_cast<double>(node.spent) / kCalls);
  }
}

void calls_that_a_program_seldom_makes_go_the_usual_way() {
  Node node;
  for (int i = 0; i < 1000; ++i) {
    CHECK(node.call(kReadingIsFaster) == kSlots);
    now += 5000;
  }
}

void tries_cost_few_hundredths() {
  for (uint64_t other : {2000, 20'000, 200'000}) {
    Node node;
    node.count(kSlots, kFirstCalls, {1000, other, other});
    node.spent = 0;
    node.count(kSlots, 1'000'000, {1000, other, other});
    CHECK(node.spent > 1'000'000'000 && node.spent < 1'025'000'000);
  }
}

void calls_with_others_in_between_go_as_sizes_say() {
  Node node;
  for (int i = 0; i < 500; ++i) {
    CHECK(node.call(kReadingIsFaster) == kSlots);
    node.barrier();
    CHECK(node.call(kReadingIsFaster, MPISTRAT_SCATTER) == kSlots);
    CHECK(node.call(kReadingIsFaster, MPISTRAT_BCAST, 16 * kBytes) == kSlots);
  }
  // What is known from before holds.
  Node other;
  other.count(kRead, 56, kReadingIsFaster);
  for (int i = 0; i < 500; ++i) {
    CHECK(other.call(kReadingIsFaster) == kRead);
    other.barrier();
  }
}

void calls_that_differ_do_not_count() {
  Node node;
  for (int i = 0; i < 2000; ++i) {
    if (i % 7 == 0) node.mismatch();
    if (i % 31 == 0) node.mismatch();
    CHECK(node.call(kReadingIsFaster) == kSlots);  // never eight in a row
  }
}

void short_arrays_are_not_timed() {
  Node node;
  for (int i = 0; i < 100; ++i)
    CHECK(node.call(kReadingIsFaster, MPISTRAT_BCAST, 2 << 10) == kSlots);
}

void sizes_and_kinds_are_apart() {
  Node node;
  node.count(kRead, 56, kReadingIsFaster);
  CHECK(node.call(kReadingIsFaster) == kRead);
  CHECK(node.call(kReadingIsFaster, MPISTRAT_BCAST, 2 * kBytes - 1) == kRead);  // as 256 KiB
  CHECK(node.call(kReadingIsFaster, MPISTRAT_BCAST, 2 * kBytes) == kSlots);
  CHECK(node.call(kReadingIsFaster, MPISTRAT_GATHER) == kSlots);
  for (int i = 0; i < 56; ++i) node.call(kReadingIsFaster, MPISTRAT_GATHER, int64_t{1} << 40);
  CHECK(node.call(kReadingIsFaster, MPISTRAT_GATHER, int64_t{1} << 50) == kRead);  // the longest
}

}  // namespace

int main() {
  the_first_groups_go_all_ways_then_the_fastest();
  ways_that_are_not_much_slower_are_tried_twice();
  long_blocks_are_tried_in_few_calls();
  a_slow_start_is_no_sign_of_change();
  one_slow_call_is_chance();
  who_cannot_read_never_does();
  who_cannot_read_any_more_goes_the_usual_way();
  another_way_has_to_be_an_eighth_faster();
  what_was_slower_is_tried_again();
  processors_that_move_change_the_choice_soon();
  irregular_gaps_between_calls_cost_little();
  calls_that_a_program_seldom_makes_go_the_usual_way();
  tries_cost_few_hundredths();
  calls_with_others_in_between_go_as_sizes_say();
  calls_that_differ_do_not_count();
  short_arrays_are_not_timed();
  sizes_and_kinds_are_apart();
}
