#ifndef MPISTRAT_COMMON_BACKOFF_H_
#define MPISTRAT_COMMON_BACKOFF_H_

// The back-off of every wait: spin, then yield the core, then sleep; one set of figures for each
// kind of wait.

#include <cstdint>

namespace mpistrat {

enum class Pause { kSpin, kYield, kSleep };

struct BackoffFigures {
  uint64_t spin_ns;       // so long after its beginning a wait looks again at once,
  uint64_t yield_ns;      // and so long it offers its core; from then on it sleeps
  uint64_t min_sleep_ns;  // yield instead of shorter sleeps
  uint64_t max_sleep_ns;

  Pause pause_after(uint64_t waited_ns) const {
    return waited_ns < spin_ns    ? Pause::kSpin
           : waited_ns < yield_ns ? Pause::kYield
                                  : Pause::kSleep;
  }
};

// Another rank of this node, which wakes those who sleep (futex_wait.h). It spins for as long as
// most differences between ranks are; a sleep and its wake-up cost about 50 us. The longest sleep
// is for a wake-up that got lost.
constexpr BackoffFigures kRankBackoff{20'000, 1'000'000, 0, 20'000'000};

// The same with more ranks than processors, where the last rank may not be running. A waiter that
// yields again and again comes back at once, and keeps the core from it: so it sleeps early.
constexpr BackoffFigures kCrowdedRankBackoff{0, 50'000, 0, 20'000'000};

// Messages of MPI. A poll makes MPI visit every connection: without sleeps the ranks of a node take
// each other's processors, and with long ones a fast network would run dry.
constexpr BackoffFigures kMessageBackoff{0, 1'000'000, 10'000, 500'000};

// A store, whose owner never waits, and so never wakes anybody.
constexpr BackoffFigures kStoreBackoff{0, 100'000, 0, 50'000};

// Pauses in a loop that polls what nobody announces.
class Backoff {
 public:
  // `budget_ns` is for wait().
  explicit Backoff(const BackoffFigures& figures, uint64_t budget_ns = 0)
      : figures_(figures), budget_ns_(budget_ns) {}

  // A wait begins.
  void begin();
  // Something has happened: sleep for shorter again.
  void moved();
  // Yield or sleep, the longer the longer nothing has happened, but not much longer than this.
  void pause(uint64_t at_most_ns);

  // Pause, of a wait that begins with the first call; returns false, at once, if the budget is
  // spent.
  bool wait();

 private:
  void pause(uint64_t now, uint64_t at_most_ns) const;

  const BackoffFigures figures_;
  const uint64_t budget_ns_;
  uint64_t began_ns_ = 0, moved_ns_ = 0;
};

// One look after the other: a hint to the processor that this is a loop that waits.
void spin_core();
// Let other processes and threads have this core.
void yield_core();

}  // namespace mpistrat

#endif  // MPISTRAT_COMMON_BACKOFF_H_
