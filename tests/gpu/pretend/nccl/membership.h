// How ranks come into a communicator, and leave it.
#pragma once

#include "nccl/communicator.h"
#include "nccl/interface/nccl.h"

namespace pretend {

// Take this rank's seat, wait for all others, and check that each has a GPU of its own.
ncclResult_t join(Communicator& communicator, const ncclUniqueId& id);

// Meet all ranks of `parent`, and join those of the same color as `child` (null: kNoColor).
ncclResult_t split(Communicator& parent, int color, int key, const CommunicatorPtr& child);

// Wait for this rank's work, then for all others to finalize, abort or end.
ncclResult_t finalize(Communicator& communicator);

// End this rank's work where it waits. Its memory is no longer touched afterwards.
void abort(Communicator& communicator);

}  // namespace pretend
