#include "runtime/interface/errors.h"

#include <errno.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "runtime/settings.h"

namespace pretend {
namespace {

thread_local hipError_t last = hipSuccess;

#define NAME(error) {error, #error}
constexpr std::pair<hipError_t, const char*> kNames[] = {
    NAME(hipSuccess),
    NAME(hipErrorInvalidValue),
    NAME(hipErrorOutOfMemory),
    NAME(hipErrorNotInitialized),
    NAME(hipErrorInvalidMemcpyDirection),
    NAME(hipErrorNoDevice),
    NAME(hipErrorInvalidDevice),
    NAME(hipErrorInvalidImage),
    NAME(hipErrorInvalidContext),
    NAME(hipErrorMapFailed),
    NAME(hipErrorPeerAccessUnsupported),
    NAME(hipErrorFileNotFound),
    NAME(hipErrorInvalidHandle),
    NAME(hipErrorNotFound),
    NAME(hipErrorNotReady),
    NAME(hipErrorIllegalAddress),
    NAME(hipErrorPeerAccessAlreadyEnabled),
    NAME(hipErrorPeerAccessNotEnabled),
    NAME(hipErrorHostMemoryAlreadyRegistered),
    NAME(hipErrorHostMemoryNotRegistered),
    NAME(hipErrorLaunchFailure),
    NAME(hipErrorNotSupported),
};
#undef NAME

}  // namespace

hipError_t remember(hipError_t error) {
  if (error != hipSuccess && error != hipErrorNotReady) last = error;
  return error;
}

hipError_t missing(const char* function, const char* what) {
  std::fprintf(stderr,
               "[pretend GPU] %s%s%s does not exist here; see \"not implemented\" in"
               " tests/gpu/pretend/README.md\n",
               function, *what ? ": " : "", what);
  if (settings().aborts_on_missing) std::abort();
  return remember(hipErrorNotSupported);
}

hipError_t from_errno(int error) {
  switch (error) {
    case 0:
      return hipSuccess;
    case ENOMEM:
      return hipErrorOutOfMemory;
    case ENOENT:
      return hipErrorNotFound;
    case ENOEXEC:
      return hipErrorInvalidImage;
    default:
      return hipErrorInvalidValue;
  }
}

}  // namespace pretend

using pretend::last;

HIP_API const char* hipGetErrorName(hipError_t error) {
  for (const auto& name : pretend::kNames)
    if (name.first == error) return name.second;
  return "hipErrorUnknown";
}
HIP_API const char* hipGetErrorString(hipError_t error) {
  return error ? "an error of the pretended GPU" : "no error";
}
HIP_API hipError_t hipGetLastError() {
  const hipError_t error = last;
  last = hipSuccess;
  return error;
}
HIP_API hipError_t hipPeekAtLastError() { return last; }
