#ifndef MPISTRAT_COMMON_POLL_BACKOFF_H_
#define MPISTRAT_COMMON_POLL_BACKOFF_H_

// Pause between polls of MPI, for longer the longer nothing has happened. A poll makes MPI visit
// every connection: without pauses the ranks of a node take each other's processors, and with long
// ones a fast network would run dry.

#include <cstdint>

namespace mpistrat {

class PollBackoff {
 public:
  // A call begins.
  void begin();
  // Something has happened.
  void moved();
  // Let time pass, the longer the longer nothing has happened, but not much longer than this.
  void pause(uint64_t at_most_ns);

 private:
  uint64_t began_ns_ = 0, moved_ns_ = 0;
};

}  // namespace mpistrat

#endif  // MPISTRAT_COMMON_POLL_BACKOFF_H_
