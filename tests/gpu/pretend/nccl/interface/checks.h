// Checks of arguments, before anything begins: a rank that failed later would leave the others.
#pragma once

#include "nccl/communicator.h"
#include "nccl/interface/nccl.h"
#include "nccl/work/collectives.h"
#include "nccl/work/messages.h"

namespace pretend {

// The communicator of a handle in `communicator`, if it can be used now.
ncclResult_t usable(const char* function, ncclComm_t handle, CommunicatorPtr* communicator);

// Whether dtype, op, root or peer, and memory are valid. Memory has to be of the communicator's
// device and inside one allocation; NCCL itself looks at none of this without NCCL_CHECK_POINTERS.
ncclResult_t check(const char* function, const Communicator& c, const Collective& call);
ncclResult_t check(const char* function, const Communicator& c, const Message& call);

}  // namespace pretend
