// Messages of errors: to stderr, and kept for ncclGetLastError.
#pragma once

#include <string>

#include "nccl/interface/nccl.h"

namespace pretend {

// Text in printf's manner.
std::string text(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Note a message as the last error of this process, print it, and return `result`.
ncclResult_t complain(ncclResult_t result, const std::string& message);

// The last message; valid until this thread asks again.
const char* last_message();

// PRETEND_NCCL_HANG=1: mistakes and lost peers hang until ncclCommAbort, as on hardware.
bool hangs_as_hardware();

}  // namespace pretend
