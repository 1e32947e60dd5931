// Messages between two ranks (ncclSend, ncclRecv), as the thread of a stream runs them.
#pragma once

#include <vector>

#include "nccl/communicator.h"
#include "nccl/interface/nccl.h"

namespace pretend {

struct Message {
  bool sends;
  int peer;
  char* memory;
  size_t count;
  ncclDataType_t dtype;
  size_t at = 0;  // bytes that have been moved
  bool begun = false, done = false;
};

// Move all messages of one launch. They progress together; those of one direction and peer go in
// the order of their calls.
Communicator::Outcome run(Communicator& communicator, std::vector<Message>& messages);

}  // namespace pretend
