// The choice of an all-reduce's algorithm (algorithm_choice.h): two kinds of slots, and reading.

#include "../shm/reduction/algorithm_choice.h"

#include <utility>

#include "helpers/check.h"

namespace {

constexpr int64_t kBytes = 3 << 20;

using mpistrat::AlgorithmChoice;

struct Times {
  uint64_t by_slots, streamed, read;
};

// Two ranks, of which one may find other times than the other. They meet in every call.
struct Pair {
  AlgorithmChoice ranks[2];
  bool can_read = true;
  int num_asked = 0, num_timed = 0;

  // What rank 0 does.
  AlgorithmChoice::Algorithm call(Times first, Times second, int64_t nbytes = kBytes) {
    AlgorithmChoice::Plan plans[2] = {ranks[0].plan(nbytes, can_read),
                                      ranks[1].plan(nbytes, can_read)};
    CHECK(plans[0].asks == plans[1].asks && plans[0].is_decision == plans[1].is_decision);
    CHECK(can_read || !plans[0].asks);
    const bool reads = plans[0].asks && plans[0].would_read && plans[1].would_read;
    num_asked += plans[0].asks;
    const Times times[2] = {first, second};
    AlgorithmChoice::Algorithm algorithms[2];
    for (int rank = 0; rank < 2; ++rank) {
      const AlgorithmChoice::Algorithm slots =
          plans[rank].streams_slots ? AlgorithmChoice::kStreamed : AlgorithmChoice::kSlots;
      algorithms[rank] = reads ? AlgorithmChoice::kRead : slots;
      const uint64_t ns[] = {times[rank].by_slots, times[rank].streamed, times[rank].read};
      ranks[rank].count(nbytes);
      if (plans[rank].is_decision) ranks[rank].decide(nbytes, reads);
      num_timed += plans[rank].is_timed;
      if (plans[rank].is_timed) ranks[rank].note(nbytes, algorithms[rank], ns[algorithms[rank]]);
    }
    return algorithms[0];
  }

  AlgorithmChoice::Algorithm call(Times both) { return call(both, both); }

  int count(AlgorithmChoice::Algorithm algorithm, int num_calls, Times first, Times second) {
    int count = 0;
    for (int i = 0; i < num_calls; ++i) count += call(first, second) == algorithm;
    return count;
  }

  int count(AlgorithmChoice::Algorithm algorithm, int num_calls, Times both) {
    return count(algorithm, num_calls, both, both);
  }
};

constexpr Times kSlotsAreFaster{1000, 2000, 3000}, kReadingIsFaster{10'000, 8000, 3000};
constexpr Times kStreamedIsFaster{10'000, 2000, 3000};

void the_first_calls_try_all_algorithms_then_the_fastest() {
  Pair pair;
  for (AlgorithmChoice::Algorithm algorithm :
       {AlgorithmChoice::kSlots, AlgorithmChoice::kStreamed, AlgorithmChoice::kRead})
    for (int i = 0; i < 2; ++i) CHECK(pair.call(kSlotsAreFaster) == algorithm);
  CHECK(pair.count(AlgorithmChoice::kSlots, 26, kSlotsAreFaster) == 24);  // soon a try or two, and
  CHECK(pair.count(AlgorithmChoice::kSlots, 96, kSlotsAreFaster) == 94);  // then now and then
  for (Times times : {kStreamedIsFaster, kReadingIsFaster}) {
    Pair other;
    other.count(AlgorithmChoice::kSlots, 6, times);
    CHECK(other.count(
              times.streamed < times.read ? AlgorithmChoice::kStreamed : AlgorithmChoice::kRead, 26,
              times) == 24);
  }
}

void new_memory_in_the_first_calls_is_soon_made_up_for() {
  constexpr Times kNewMemory{90'000, 90'000, 90'000};
  for (AlgorithmChoice::Algorithm algorithm :
       {AlgorithmChoice::kSlots, AlgorithmChoice::kStreamed}) {
    const bool is_first = algorithm == AlgorithmChoice::kSlots;
    const Times times = is_first ? Times{1000, 1500, 1500} : Times{1500, 1000, 1500};
    Pair pair;
    if (!is_first) pair.count(algorithm, 2, times);
    pair.count(algorithm, 2, kNewMemory);
    pair.count(algorithm, is_first ? 7 : 5, times);
    CHECK(pair.count(algorithm, 23, times) == 22);  // after call 8: 16 tries to read
    CHECK(pair.call(times) != algorithm);           // 32
    CHECK(pair.count(algorithm, 31, times) == 31);
  }
}

void one_slow_call_is_chance() {
  Pair pair;
  constexpr Times kClose{1000, 1200, 1200}, kDisturbed{4000, 1200, 1200};
  pair.count(AlgorithmChoice::kSlots, 66, kClose);
  for (int i = 0; i < 3; ++i) {
    CHECK(pair.call(kDisturbed) == AlgorithmChoice::kSlots);
    CHECK(pair.count(AlgorithmChoice::kSlots, 8, kClose) == 8);
  }
}

void both_others_are_tried_again() {
  for (Times times : {kSlotsAreFaster, kStreamedIsFaster, kReadingIsFaster}) {
    Pair pair;
    pair.count(AlgorithmChoice::kSlots, 64, times);
    int tried[AlgorithmChoice::kNumAlgorithms] = {};
    for (int i = 0; i < 128; ++i) ++tried[pair.call(times)];
    for (int count : tried) CHECK(count == 1 || count == 126);
  }
}

void slots_are_seldom_asked_about() {
  Pair pair;
  pair.count(AlgorithmChoice::kRead, 64, kSlotsAreFaster);
  pair.num_asked = 0;
  pair.count(AlgorithmChoice::kRead, 128, kSlotsAreFaster);
  CHECK(pair.num_asked == 9);  // one try and eight decisions
}

void who_cannot_read_is_not_asked() {
  Pair pair;
  pair.can_read = false;
  CHECK(pair.count(AlgorithmChoice::kRead, 200, kReadingIsFaster) == 0);
  CHECK(pair.count(AlgorithmChoice::kStreamed, 10, kReadingIsFaster) == 10);
}

void ranks_that_cannot_read_choose_each_for_itself() {
  for (const auto& [first, second] : {std::pair(kStreamedIsFaster, kSlotsAreFaster),
                                      std::pair(kSlotsAreFaster, kStreamedIsFaster)}) {
    Pair pair;
    pair.can_read = false;
    pair.count(AlgorithmChoice::kSlots, 64, first, second);
    const AlgorithmChoice::Algorithm algorithm =
        first.streamed < first.by_slots ? AlgorithmChoice::kStreamed : AlgorithmChoice::kSlots;
    CHECK(pair.count(algorithm, 32, first, second) == 31);  // and a try
  }
}

void what_has_become_slow_is_left_and_found_again() {
  Pair pair;
  pair.count(AlgorithmChoice::kRead, 64, kSlotsAreFaster);
  pair.count(AlgorithmChoice::kRead, 32, kReadingIsFaster);
  CHECK(pair.count(AlgorithmChoice::kRead, 8, kReadingIsFaster) == 8);
  pair.count(AlgorithmChoice::kRead, 256, kSlotsAreFaster);
  CHECK(pair.count(AlgorithmChoice::kSlots, 8, kSlotsAreFaster) == 8);
  pair.count(AlgorithmChoice::kRead, 256, kStreamedIsFaster);
  CHECK(pair.count(AlgorithmChoice::kStreamed, 8, kStreamedIsFaster) == 8);
}

void one_rank_alone_decides_for_slots() {
  Pair pair;
  CHECK(pair.count(AlgorithmChoice::kRead, 6, kReadingIsFaster, kSlotsAreFaster) == 2);
  CHECK(pair.count(AlgorithmChoice::kRead, 57, kReadingIsFaster, kSlotsAreFaster) == 1);  // a try
}

void calls_that_differ_do_not_count() {
  Pair pair;
  for (int i = 0; i < 10; ++i) (void)pair.ranks[i % 3 == 0].plan(kBytes, true);  // then a mismatch
  for (AlgorithmChoice::Algorithm algorithm :
       {AlgorithmChoice::kSlots, AlgorithmChoice::kSlots, AlgorithmChoice::kStreamed})
    CHECK(pair.call(kSlotsAreFaster) == algorithm);
}

void lengths_are_learned_one_by_one() {
  Pair pair;
  pair.count(AlgorithmChoice::kSlots, 65, kSlotsAreFaster);
  CHECK(pair.call(kSlotsAreFaster) == AlgorithmChoice::kSlots);
  for (AlgorithmChoice::Algorithm algorithm :
       {AlgorithmChoice::kSlots, AlgorithmChoice::kStreamed,
        AlgorithmChoice::kRead})  // the first calls of this length
    for (int i = 0; i < 2; ++i)
      CHECK(pair.call(kSlotsAreFaster, kSlotsAreFaster, kBytes / 4) == algorithm);
}

void of_short_calls_some_are_timed() {
  Pair pair;
  for (int i = 0; i < 64; ++i) (void)pair.call(kStreamedIsFaster, kStreamedIsFaster, 4 << 10);
  pair.num_timed = 0;
  int streamed = 0;
  for (int i = 0; i < 64; ++i)
    streamed +=
        pair.call(kStreamedIsFaster, kStreamedIsFaster, 4 << 10) == AlgorithmChoice::kStreamed;
  CHECK(pair.num_timed == 2 * 3);
  CHECK(streamed >= 63);
}

}  // namespace

int main() {
  of_short_calls_some_are_timed();
  the_first_calls_try_all_algorithms_then_the_fastest();
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
