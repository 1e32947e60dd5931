// Errors and versions, as CUDA names them.
#include <utility>

#include "cuda/runtime/both.h"

namespace {

#define NAME(error) {error, #error}
constexpr std::pair<cudaError_t, const char*> kNames[] = {
    NAME(cudaSuccess),
    NAME(cudaErrorInvalidValue),
    NAME(cudaErrorMemoryAllocation),
    NAME(cudaErrorInitializationError),
    NAME(cudaErrorInvalidMemcpyDirection),
    NAME(cudaErrorNoDevice),
    NAME(cudaErrorInvalidDevice),
    NAME(cudaErrorInvalidKernelImage),
    NAME(cudaErrorDeviceUninitialized),
    NAME(cudaErrorMapBufferObjectFailed),
    NAME(cudaErrorPeerAccessUnsupported),
    NAME(cudaErrorFileNotFound),
    NAME(cudaErrorInvalidResourceHandle),
    NAME(cudaErrorSymbolNotFound),
    NAME(cudaErrorNotReady),
    NAME(cudaErrorIllegalAddress),
    NAME(cudaErrorPeerAccessAlreadyEnabled),
    NAME(cudaErrorPeerAccessNotEnabled),
    NAME(cudaErrorLaunchFailure),
    NAME(cudaErrorNotSupported),
};
#undef NAME

}  // namespace

CUDA_API const char* cudaGetErrorName(cudaError_t error) {
  for (const auto& name : kNames)
    if (name.first == error) return name.second;
  return "cudaErrorUnknown";
}
CUDA_API const char* cudaGetErrorString(cudaError_t error) {
  return error ? "an error of the pretended GPU" : "no error";
}
CUDA_API cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
CUDA_API cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
