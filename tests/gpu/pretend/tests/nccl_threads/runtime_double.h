// A double of the runtime below the pretended NCCL: streams are threads, device memory is memory.
#pragma once

#include <cstddef>

#include "nccl/interface/nccl.h"

namespace pretend {

void* allocate(int device, size_t nbytes);
hipStream_t make_stream();
void synchronize(hipStream_t stream);

}  // namespace pretend
