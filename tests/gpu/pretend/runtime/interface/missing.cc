// Functions that CuPy's modules name and that do not exist here: each says so, by its name.
#include "runtime/interface/errors.h"

#define MISSING(name) \
  HIP_API hipError_t name() { return pretend::missing(#name); }

MISSING(hipCreateSurfaceObject)
MISSING(hipDestroySurfaceObject)
MISSING(hipGraphDebugDotPrint)
MISSING(hipGraphDestroy)
MISSING(hipGraphExecDestroy)
MISSING(hipGraphInstantiate)
MISSING(hipGraphLaunch)
MISSING(hipOccupancyMaxActiveBlocksPerMultiprocessor)
MISSING(hipOccupancyMaxPotentialBlockSize)
MISSING(hipStreamBeginCapture)
MISSING(hipStreamEndCapture)
MISSING(hipStreamGetCaptureInfo)
MISSING(hipStreamGetCaptureInfo_v2)
