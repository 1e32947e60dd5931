// The error of this thread's last call, and calls that do not exist here.
#pragma once

#include "runtime/interface/hip_api.h"

namespace pretend {

// Keep an error for hipGetLastError, and return it.
hipError_t remember(hipError_t error);

// Say that a function does not exist here, and abort; with PRETEND_MISSING=error return an error.
hipError_t missing(const char* function, const char* what = "");

// HIP's error for one of errno.h.
hipError_t from_errno(int error);

}  // namespace pretend
