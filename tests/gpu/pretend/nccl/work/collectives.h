// The collectives, as the thread of a stream runs them.
#pragma once

#include "nccl/communicator.h"
#include "nccl/interface/nccl.h"

namespace pretend {

enum class Kind : uint32_t { kAllReduce, kReduce, kBroadcast, kAllGather, kReduceScatter };

struct Collective {
  Kind kind;
  const char* send;
  char* receive;
  size_t count;  // as the caller gave it: of each rank's part for all-gather and reduce-scatter
  ncclDataType_t dtype;
  ncclRedOp_t op = ncclSum;
  int root = 0;
};

// "ncclReduce(count 3, float32, sum, root 1)", for messages.
std::string describe(const CallLine& line);

Communicator::Outcome run(Communicator& communicator, const Collective& call);

}  // namespace pretend
