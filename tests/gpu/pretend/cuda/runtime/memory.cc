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
CUDA_API cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from,
                                       size_t from_pitch, size_t width, size_t height,
                                       cudaMemcpyKind kind, cudaStream_t stream) {
  for (size_t row = 0; row < height; ++row) {
    const cudaError_t error =
        cudaMemcpyAsync(static_cast<char*>(to) + row * to_pitch,
                        static_cast<const char*>(from) + row * from_pitch, width, kind, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}
// Where managed memory is and who may want it changes nothing here.
CUDA_API cudaError_t cudaMemAdvise(const void*, size_t, cudaMemoryAdvise, cudaMemLocation) {
  return cudaSuccess;
}
CUDA_API cudaError_t cudaMemPrefetchAsync(const void*, size_t, cudaMemLocation, unsigned,
                                          cudaStream_t) {
  return cudaSuccess;
}
