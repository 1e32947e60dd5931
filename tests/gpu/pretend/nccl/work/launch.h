// A launch: what one group calls on one communicator, handed to streams.
#pragma once

#include <memory>
#include <vector>

#include "nccl/communicator.h"
#include "nccl/interface/nccl.h"
#include "nccl/work/collectives.h"
#include "nccl/work/messages.h"

namespace pretend {

struct Launch {
  CommunicatorPtr communicator;
  std::vector<hipStream_t> streams;  // each once, in the order of the calls
  std::vector<Collective> collectives;
  std::vector<Message> messages;
};

// Hand a launch to its first stream; the others wait for it, and it for them. As in NCCL the
// collectives of a group run in their order, then all its messages together.
ncclResult_t hand_over(const std::shared_ptr<Launch>& launch);

}  // namespace pretend
