// Calls on memory whose structures are not HIP's.
#include <cstring>

#include "cuda/runtime/both.h"

extern "C" hipError_t hipPointerGetAttributes(hipPointerAttribute_t* found, const void* pointer);

CUDA_API cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* found, const void* pointer) {
  hipPointerAttribute_t same;
  const hipError_t error = hipPointerGetAttributes(&same, pointer);
  std::memset(found, 0, sizeof *found);
  found->type = static_cast<cudaMemoryType>(same.type);
  found->device = same.device;
  found->devicePointer = same.devicePointer;
  found->hostPointer = same.hostPointer;
  return static_cast<cudaError_t>(error);
}
// Where managed memory is and who may want it changes nothing here.
CUDA_API cudaError_t cudaMemAdvise(const void*, size_t, cudaMemoryAdvise, cudaMemLocation) {
  return cudaSuccess;
}
CUDA_API cudaError_t cudaMemPrefetchAsync(const void*, size_t, cudaMemLocation, unsigned,
                                          cudaStream_t) {
  return cudaSuccess;
}
