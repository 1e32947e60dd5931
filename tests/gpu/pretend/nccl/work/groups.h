// Groups of calls: what a thread calls between ncclGroupStart and ncclGroupEnd begins at the end.
#pragma once

#include <functional>

#include "nccl/communicator.h"
#include "nccl/interface/nccl.h"
#include "nccl/work/collectives.h"
#include "nccl/work/messages.h"

namespace pretend {

ncclResult_t start_group();
ncclResult_t end_group();

// Put a call on a stream: now, or at the end of this thread's group.
ncclResult_t call(const CommunicatorPtr& communicator, hipStream_t stream, const Collective& c);
ncclResult_t call(const CommunicatorPtr& communicator, hipStream_t stream, const Message& m);

// Run a host call in which ranks wait for each other: now, or at the end of this thread's group,
// beside the others of the group.
ncclResult_t host_call(const CommunicatorPtr& communicator, std::function<ncclResult_t()> job);

// Return an error; inside of a group it is the group's, which then does nothing.
ncclResult_t note(ncclResult_t result);

}  // namespace pretend
