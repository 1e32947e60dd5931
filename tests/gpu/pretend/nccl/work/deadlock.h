// Finds ranks that can never come: they have left, or wait for this rank in another call.
//
// Only pairs of ranks that wait for each other are found. NCCL runs one piece of work of a
// communicator at a time, so such a pair is stuck whatever streams it uses; a real GPU would hang.
#pragma once

#include <cstdint>
#include <string>

namespace pretend {

class Communicator;

inline uint64_t bit(int rank) { return uint64_t{1} << rank; }

// Whom a rank waits for, as in `Waiting` (segment.h).
struct Waits {
  uint64_t meets = 0, sends = 0, receives = 0;
  bool operator==(const Waits&) const = default;
};

class DeadlockSearch {
 public:
  explicit DeadlockSearch(Communicator& communicator) : c_(communicator) {}
  ~DeadlockSearch();
  DeadlockSearch(const DeadlockSearch&) = delete;
  DeadlockSearch& operator=(const DeadlockSearch&) = delete;

  // Tell the others whom this rank waits for, and look at them. To be called again and again while
  // the wait lasts; true when a deadlock has lasted so long that no late look explains it.
  bool finds(const Waits& mine, bool is_host_call = false);
  std::string message() const;

 private:
  void publish(const Waits& mine);
  int stuck_peer() const;
  bool is_stuck(int peer) const;
  Waits waits_of(int rank) const;
  std::string describe(int rank, int other) const;

  Communicator& c_;
  Waits mine_;
  bool is_host_call_ = false, is_published_ = false;
  int64_t next_look_ms_ = 0;
  // The pair that was stuck at the last look, since when, and the change of its other rank then.
  int peer_ = -1;
  int64_t since_ms_ = 0;
  uint64_t change_ = 0;
};

}  // namespace pretend
