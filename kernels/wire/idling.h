#ifndef MPISTRAT_WIRE_IDLING_H_
#define MPISTRAT_WIRE_IDLING_H_

// Waiting for messages. A look makes MPI visit every connection: without pauses the ranks of a node
// take each other's processors, and with long ones a fast wire would run dry.

#include <cstdint>

namespace mpistrat::wire {

class Idling {
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

}  // namespace mpistrat::wire

#endif  // MPISTRAT_WIRE_IDLING_H_
