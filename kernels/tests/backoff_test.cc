// The back-off: when a wait spins, yields and sleeps, how long it sleeps, and when it gives up.

#include "../common/backoff.h"

#include <algorithm>
#include <cstdint>

#include "../common/clock.h"
#include "helpers/check.h"

namespace {

using namespace mpistrat;

void the_longer_a_wait_the_less_it_asks_for_the_core() {
  CHECK(kRankBackoff.pause_after(0) == Pause::kSpin);
  CHECK(kRankBackoff.pause_after(kRankBackoff.spin_ns) == Pause::kYield);
  CHECK(kRankBackoff.pause_after(kRankBackoff.yield_ns) == Pause::kSleep);
  for (const BackoffFigures& figures : {kCrowdedRankBackoff, kMessageBackoff, kStoreBackoff}) {
    CHECK(figures.pause_after(0) == Pause::kYield);
    CHECK(figures.pause_after(figures.yield_ns - 1) == Pause::kYield);
    CHECK(figures.pause_after(figures.yield_ns) == Pause::kSleep);
  }
  CHECK(kCrowdedRankBackoff.yield_ns < kRankBackoff.yield_ns);
}

void wait_actively(uint64_t ns) {
  const uint64_t start = now_ns();
  while (now_ns() - start < ns) spin_core();
}

// How long a pause takes that comes 10 ms after the beginning.
uint64_t paused_ns(const BackoffFigures& figures, bool has_moved) {
  Backoff backoff(figures);
  backoff.begin();
  wait_actively(10'000'000);
  if (has_moved) backoff.moved();
  const uint64_t start = now_ns();
  backoff.pause(UINT64_MAX);
  return now_ns() - start;
}

uint64_t least_paused_ns(const BackoffFigures& figures, bool has_moved) {
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < 5; ++i) least = std::min(least, paused_ns(figures, has_moved));
  return least;
}

void sleeps_are_a_share_of_what_was_waited_for() {
  constexpr BackoffFigures kUnlimited{0, 0, 0, UINT64_MAX}, kShort{0, 0, 0, 1'000'000};
  CHECK(least_paused_ns(kUnlimited, false) >= 5'000'000);
  CHECK(least_paused_ns(kUnlimited, true) < 5'000'000);
  CHECK(least_paused_ns(kShort, false) >= 1'000'000);
  CHECK(least_paused_ns(kShort, false) < 5'000'000);
}

// Returns how often a wait with this budget has paused.
int num_pauses_until_spent(uint64_t budget_ns) {
  Backoff backoff(kStoreBackoff, budget_ns);
  const uint64_t start = now_ns();
  int num_pauses = 0;
  while (backoff.wait()) ++num_pauses;
  CHECK(now_ns() - start >= budget_ns);
  return num_pauses;
}

void a_wait_ends_when_its_budget_is_spent() {
  CHECK(!Backoff(kStoreBackoff).wait());
  int most = 0;  // of several waits: on a busy machine one pause may take as long as the budget
  for (int i = 0; i < 5; ++i) most = std::max(most, num_pauses_until_spent(3'000'000));
  CHECK(most > 1);
}

}  // namespace

int main() {
  the_longer_a_wait_the_less_it_asks_for_the_core();
  sleeps_are_a_share_of_what_was_waited_for();
  a_wait_ends_when_its_budget_is_spent();
}
