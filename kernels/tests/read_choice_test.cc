// The choice of how data is moved (read_choice.h): as sizes say, or the other way.

#include "../shm/peer_read/read_choice.h"

#include "helpers/check.h"

namespace {

using mpistrat::ReadChoice;

uint64_t now = 1;

uint64_t fake_clock() { return now; }

struct Times {
  uint64_t as_sizes_say, other;
};

constexpr int64_t kBytes = 1 << 20;
constexpr Times kOtherIsFaster{1000, 500}, kOtherIsSlower{1000, 2000};

// Three ranks, which meet in every call.
struct Node {
  ReadChoice::Decisions decisions = {};
  ReadChoice ranks[3] = {{&decisions, true, fake_clock},
                         {&decisions, false, fake_clock},
                         {&decisions, false, fake_clock}};
  uint64_t spent = 0;

  // Return whether the ranks went the other way. They begin in any order, in turn.
  bool call(Times times, int kind = MPISTRAT_BCAST, int64_t nbytes = kBytes, bool is_long = false) {
    bool reads[3];
    for (int i = 0; i < 3; ++i) {
      const int rank = static_cast<int>((now + static_cast<uint64_t>(i)) % 3);
      ranks[rank].begin_call();
      reads[rank] = ranks[rank].plan(kind, nbytes, is_long);
    }
    CHECK(reads[0] == reads[1] && reads[1] == reads[2]);
    const bool is_other = reads[0] != is_long;
    now += is_other ? times.other : times.as_sizes_say;
    spent += is_other ? times.other : times.as_sizes_say;
    for (ReadChoice& rank : ranks) rank.count();
    return is_other;
  }

  // A call that the ranks do not make alike.
  void mismatch() {
    for (ReadChoice& rank : ranks) {
      rank.begin_call();
      rank.plan(MPISTRAT_BCAST, kBytes, false);
    }
    now += 70;
  }

  // A call that is not timed.
  void barrier() {
    for (ReadChoice& rank : ranks) rank.begin_call();
    now += 10;
  }

  int count(int num_calls, Times times) {
    int count = 0;
    for (int i = 0; i < num_calls; ++i) count += call(times);
    return count;
  }
};

void the_first_groups_go_both_ways_then_the_faster_one() {
  for (bool is_long : {false, true}) {
    Node node;
    for (int group = 0; group < 4; ++group)
      for (int i = 0; i < 8; ++i)
        CHECK(node.call(kOtherIsFaster, MPISTRAT_GATHER, kBytes, is_long) == (group % 2 == 1));
    for (int i = 0; i < 400; ++i)
      CHECK(node.call(kOtherIsFaster, MPISTRAT_GATHER, kBytes, is_long));
  }
  Node node;
  CHECK(node.count(32, kOtherIsSlower) == 16);
  CHECK(node.count(400, kOtherIsSlower) == 0);  // which costs as much again
  Node last;
  last.count(32, {1000, 1001});
  CHECK(last.count(64 + 8 + 128 + 8 + 256 + 8, {1000, 1001}) == 3 * 8);
}

void the_other_way_has_to_be_an_eighth_faster() {
  Node node, another;
  node.count(32, {1000, 900});
  CHECK(node.count(400, {1000, 900}) <= 16);  // tries
  another.count(32, {1000, 860});
  CHECK(another.count(400, {1000, 860}) >= 384);
}

void what_was_slower_is_tried_again() {
  Node node;
  node.count(32, kOtherIsSlower);
  node.count(2000, kOtherIsFaster);
  CHECK(node.count(1000, kOtherIsFaster) >= 984);
  // And back: what was chosen has become slower.
  node.count(2000, kOtherIsSlower);
  CHECK(node.count(1000, kOtherIsSlower) <= 16);
}

void tries_cost_about_a_hundredth() {
  for (uint64_t other : {2000, 20'000, 200'000}) {
    Node node;
    node.count(32, {1000, other});
    node.spent = 0;
    node.count(1'000'000, {1000, other});
    CHECK(node.spent > 1'000'000'000 && node.spent < 1'016'000'000);
  }
}

void calls_with_others_in_between_go_as_sizes_say() {
  Node node;
  for (int i = 0; i < 500; ++i) {
    CHECK(!node.call(kOtherIsFaster));
    node.barrier();
    CHECK(!node.call(kOtherIsFaster, MPISTRAT_SCATTER));
    CHECK(!node.call(kOtherIsFaster, MPISTRAT_BCAST, 16 * kBytes));
  }
  // What is known from before holds.
  Node other;
  other.count(40, kOtherIsFaster);
  for (int i = 0; i < 500; ++i) {
    CHECK(other.call(kOtherIsFaster));
    other.barrier();
  }
}

void calls_that_differ_do_not_count() {
  Node node;
  for (int i = 0; i < 2000; ++i) {
    if (i % 7 == 0) node.mismatch();
    if (i % 31 == 0) node.mismatch();
    CHECK(!node.call(kOtherIsFaster));  // never eight in a row
  }
}

void short_arrays_are_not_timed() {
  Node node;
  for (int i = 0; i < 100; ++i) CHECK(!node.call(kOtherIsFaster, MPISTRAT_BCAST, 8 << 10));
}

void sizes_and_kinds_are_apart() {
  Node node;
  node.count(40, kOtherIsFaster);
  CHECK(node.call(kOtherIsFaster));
  CHECK(node.call(kOtherIsFaster, MPISTRAT_BCAST, 2 * kBytes - 1));  // of the same power of two
  CHECK(!node.call(kOtherIsFaster, MPISTRAT_BCAST, 2 * kBytes));
  CHECK(!node.call(kOtherIsFaster, MPISTRAT_GATHER));
  for (int i = 0; i < 40; ++i) node.call(kOtherIsFaster, MPISTRAT_GATHER, int64_t{1} << 40);
  CHECK(node.call(kOtherIsFaster, MPISTRAT_GATHER, int64_t{1} << 50));  // as the longest
}

}  // namespace

int main() {
  the_first_groups_go_both_ways_then_the_faster_one();
  the_other_way_has_to_be_an_eighth_faster();
  what_was_slower_is_tried_again();
  tries_cost_about_a_hundredth();
  calls_with_others_in_between_go_as_sizes_say();
  calls_that_differ_do_not_count();
  short_arrays_are_not_timed();
  sizes_and_kinds_are_apart();
}
