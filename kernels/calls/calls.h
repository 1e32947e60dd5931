#ifndef MPISTRAT_CALLS_CALLS_H_
#define MPISTRAT_CALLS_CALLS_H_

// The base of nodes and wires: one call at a time, and a queue of them.

#include "queue.h"

// What a node and a wire derive from; they halt the queue before they are destroyed.
struct MpistratCalls : mpistrat::Caller {
  mpistrat::Queue queue{this};
  bool is_under_way = false;  // a call was begun, and its end not told; not one of the queue's own
};

#endif  // MPISTRAT_CALLS_CALLS_H_
