#pragma once

namespace pretend {

// Give the calling OS thread a stack for signal handlers: that of a CUDA thread may be what is
// full.
void prepare_for_faults();

}  // namespace pretend
