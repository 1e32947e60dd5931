// What devices can do, in CUDA's numbers and structures.
#include <cstring>

#include "cuda/runtime/both.h"

extern "C" {
hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t name, int device);
hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_tR0600* found, int device);
}

namespace {

constexpr int kMajor = 9, kMinor = 0, kWarp = 32;
constexpr int kShared = 48 << 10;  // bytes of shared memory of a block that asks for no more

// HIP's attribute for one of CUDA's; -1 where it has none.
int of_hip(cudaDeviceAttr name) {
  switch (name) {
    case cudaDevAttrMaxThreadsPerBlock:
      return hipDeviceAttributeMaxThreadsPerBlock;
    case cudaDevAttrMaxBlockDimX:
      return hipDeviceAttributeMaxBlockDimX;
    case cudaDevAttrMaxBlockDimY:
      return hipDeviceAttributeMaxBlockDimY;
    case cudaDevAttrMaxBlockDimZ:
      return hipDeviceAttributeMaxBlockDimZ;
    case cudaDevAttrMaxGridDimX:
      return hipDeviceAttributeMaxGridDimX;
    case cudaDevAttrMaxGridDimY:
      return hipDeviceAttributeMaxGridDimY;
    case cudaDevAttrMaxGridDimZ:
      return hipDeviceAttributeMaxGridDimZ;
    case cudaDevAttrMaxRegistersPerBlock:
      return hipDeviceAttributeMaxRegistersPerBlock;
    case cudaDevAttrMultiProcessorCount:
      return hipDeviceAttributeMultiprocessorCount;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return hipDeviceAttributeMaxThreadsPerMultiProcessor;
    case cudaDevAttrPciBusId:
      return hipDeviceAttributePciBusId;
    case cudaDevAttrUnifiedAddressing:
      return hipDeviceAttributeUnifiedAddressing;
    case cudaDevAttrConcurrentKernels:
      return hipDeviceAttributeConcurrentKernels;
    default:
      return -1;
  }
}

// The physical device is part of its name and of the uuid: "pretended-00003".
void copy(cudaDeviceProp* to, const hipDeviceProp_tR0600& from) {
  std::memcpy(to->name, from.name, sizeof to->name);
  std::memcpy(&to->uuid, from.uuid_and_luid, sizeof to->uuid);
  std::memcpy(to->maxThreadsDim, from.maxThreadsDim, sizeof to->maxThreadsDim);
  std::memcpy(to->maxGridSize, from.maxGridSize, sizeof to->maxGridSize);
  to->totalGlobalMem = from.totalGlobalMem;
  to->maxThreadsPerBlock = from.maxThreadsPerBlock;
  to->multiProcessorCount = from.multiProcessorCount;
  to->concurrentKernels = from.concurrentKernels;
  to->pciBusID = from.pciBusID;
}

}  // namespace

CUDA_API cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr name, int device) {
  *value = 0;
  const int same = of_hip(name);
  const hipError_t error = hipDeviceGetAttribute(value, same, device);
  if (name == cudaDevAttrComputeCapabilityMajor) *value = kMajor;
  if (name == cudaDevAttrComputeCapabilityMinor) *value = kMinor;
  if (name == cudaDevAttrWarpSize) *value = kWarp;
  if (name == cudaDevAttrMaxSharedMemoryPerBlock) *value = kShared;
  return static_cast<cudaError_t>(error);
}
CUDA_API cudaError_t cudaGetDeviceProperties(cudaDeviceProp* found, int device) {
  hipDeviceProp_tR0600 same;
  const hipError_t error = hipGetDevicePropertiesR0600(&same, device);
  if (error) return static_cast<cudaError_t>(error);
  std::memset(found, 0, sizeof *found);
  copy(found, same);
  found->major = kMajor;
  found->minor = kMinor;
  found->warpSize = kWarp;
  found->sharedMemPerBlock = kShared;
  found->unifiedAddressing = found->managedMemory = found->ipcEventSupported = 1;
  return cudaSuccess;
}
