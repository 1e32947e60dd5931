#ifndef MPISTRAT_CALLS_CALLS_H_
#define MPISTRAT_CALLS_CALLS_H_

#include "queue.h"

// What a node and a wire derive from; they halt the queue before they are destroyed.
struct MpistratCalls : mpistrat::Caller {
  mpistrat::Queue queue{this};
  int64_t detached = -1;  // the number in the queue of the call that was detached
};

#endif  // MPISTRAT_CALLS_CALLS_H_
