// Functions of the documented interface that are not here: they say their name and end the process.
#include <cstdlib>
#include <cstring>

#include "nccl/interface/errors.h"
#include "nccl/interface/nccl.h"

// PRETEND_MISSING=error: return an error instead.
#define MISSING(name)                                                                            \
  NCCL_API ncclResult_t name() {                                                                 \
    pretend::complain(ncclInvalidUsage, #name                                                    \
                      " is not part of the pretended NCCL (tests/gpu/pretend/nccl): add it, or " \
                      "test what needs it on a real GPU");                                       \
    const char* missing = std::getenv("PRETEND_MISSING");                                        \
    if (!missing || std::strcmp(missing, "error")) std::abort();                                 \
    return ncclInvalidUsage;                                                                     \
  }

MISSING(ncclAllToAll)
MISSING(ncclAllToAllv)
MISSING(ncclCommDeregister)
MISSING(ncclCommInitRankScalable)
MISSING(ncclCommRegister)
MISSING(ncclCommShrink)
MISSING(ncclCommWindowDeregister)
MISSING(ncclCommWindowRegister)
MISSING(ncclGather)
MISSING(ncclGroupSimulateEnd)
MISSING(ncclMemAlloc)
MISSING(ncclMemFree)
MISSING(ncclRedOpCreatePreMulSum)
MISSING(ncclRedOpDestroy)
MISSING(ncclScatter)
