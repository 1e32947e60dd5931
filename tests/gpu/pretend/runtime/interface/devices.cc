// Devices, as HIP calls them.
#include <cstdio>
#include <cstring>

#include "runtime/interface/errors.h"
#include "runtime/memory.h"
#include "runtime/settings.h"
#include "runtime/streams.h"

namespace {

using pretend::remember;
using pretend::settings;

constexpr int kVersion = 70051831;
constexpr int kThreads = 1024;     // of a block
constexpr int kShared = 64 << 10;  // bytes of shared memory of a block
constexpr int kProcessors = 2;

bool exists(int device) {
  return device >= 0 && device < static_cast<int>(settings().devices.size());
}

}  // namespace

HIP_API hipError_t hipDriverGetVersion(int* version) {
  *version = kVersion;
  return hipSuccess;
}
HIP_API hipError_t hipRuntimeGetVersion(int* version) {
  *version = kVersion;
  return hipSuccess;
}
HIP_API hipError_t hipGetDeviceCount(int* count) {
  *count = static_cast<int>(settings().devices.size());
  return *count ? hipSuccess : remember(hipErrorNoDevice);
}
HIP_API hipError_t hipGetDevice(int* device) {
  *device = pretend::current_device();
  return hipSuccess;
}
HIP_API hipError_t hipSetDevice(int device) {
  if (!exists(device)) return remember(hipErrorInvalidDevice);
  pretend::set_current_device(device);
  return hipSuccess;
}
HIP_API hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t name, int device) {
  if (!exists(device)) return remember(hipErrorInvalidDevice);
  switch (name) {
    case hipDeviceAttributeComputeCapabilityMajor:
      *value = 9;
      break;
    case hipDeviceAttributeComputeCapabilityMinor:
      *value = 4;
      break;
    case hipDeviceAttributeMaxThreadsPerBlock:
    case hipDeviceAttributeMaxBlockDimX:
    case hipDeviceAttributeMaxBlockDimY:
    case hipDeviceAttributeMaxBlockDimZ:
      *value = kThreads;
      break;
    case hipDeviceAttributeMaxGridDimX:
      *value = 2147483647;
      break;
    case hipDeviceAttributeMaxGridDimY:
    case hipDeviceAttributeMaxGridDimZ:
      *value = 65536;
      break;
    case hipDeviceAttributeMaxSharedMemoryPerBlock:
      *value = kShared;
      break;
    case hipDeviceAttributeWarpSize:
      *value = 64;
      break;
    case hipDeviceAttributeMultiprocessorCount:
      *value = kProcessors;
      break;
    case hipDeviceAttributeMaxThreadsPerMultiProcessor:
      *value = 2048;
      break;
    case hipDeviceAttributeMaxRegistersPerBlock:
      *value = 65536;
      break;
    case hipDeviceAttributePciBusId:
      *value = settings().devices[static_cast<size_t>(device)] + 1;
      break;
    case hipDeviceAttributeUnifiedAddressing:
    case hipDeviceAttributeConcurrentKernels:
      *value = 1;
      break;
    default:
      *value = 0;
  }
  return hipSuccess;
}
HIP_API hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_tR0600* found, int device) {
  if (!exists(device)) return remember(hipErrorInvalidDevice);
  const int physical = settings().devices[static_cast<size_t>(device)];
  std::memset(found, 0, sizeof *found);
  std::snprintf(found->name, sizeof found->name, "pretended GPU %d", physical);
  std::snprintf(found->gcnArchName, sizeof found->gcnArchName, "gfx942:pretended");
  std::snprintf(found->uuid_and_luid, 16, "pretended-%05d", physical % 1000);
  found->totalGlobalMem = settings().memory_bytes;
  found->major = 9;
  found->minor = 4;
  found->multiProcessorCount = kProcessors;
  found->warpSize = 64;
  found->maxThreadsPerBlock = kThreads;
  for (int i = 0; i < 3; ++i) {
    found->maxThreadsDim[i] = kThreads;
    found->maxGridSize[i] = i ? 65536 : 2147483647;
  }
  found->sharedMemPerBlock = kShared;
  found->concurrentKernels = 1;
  found->pciBusID = physical + 1;
  return hipSuccess;
}
HIP_API hipError_t hipDeviceGetPCIBusId(char* text, int size, int device) {
  if (!exists(device)) return remember(hipErrorInvalidDevice);
  std::snprintf(text, static_cast<size_t>(size), "%s", pretend::bus_id(device).c_str());
  return hipSuccess;
}
HIP_API hipError_t hipDeviceGetByPCIBusId(int* device, const char* text) {
  for (int i = 0; exists(i); ++i)
    if (pretend::bus_id(i) == text) {
      *device = i;
      return hipSuccess;
    }
  return remember(hipErrorInvalidDevice);
}
HIP_API hipError_t hipDeviceCanAccessPeer(int* can, int device, int peer) {
  if (!exists(device) || !exists(peer)) return remember(hipErrorInvalidDevice);
  *can = device != peer && settings().has_peers;
  return hipSuccess;
}
HIP_API hipError_t hipDeviceEnablePeerAccess(int peer, unsigned) {
  const int device = pretend::current_device();
  if (!exists(peer) || peer == device) return remember(hipErrorInvalidDevice);
  if (!settings().has_peers) return remember(hipErrorPeerAccessUnsupported);
  if (!pretend::device(device)) return remember(hipErrorNotInitialized);
  return remember(pretend::enable_peer(device, peer));
}
HIP_API hipError_t hipDeviceDisablePeerAccess(int peer) {
  if (!exists(peer)) return remember(hipErrorInvalidDevice);
  pretend::wait_for_device(pretend::current_device());
  return remember(pretend::disable_peer(pretend::current_device(), peer));
}
HIP_API hipError_t hipDeviceSynchronize() {
  const int device = pretend::current_device();
  pretend::wait_for_device(device);
  return remember(pretend::error_of(device));
}
HIP_API hipError_t hipDeviceGetLimit(size_t* value, int) {
  *value = 0;
  return hipSuccess;
}
// These three were asked for by CuPy 14.0 and 14.1.
HIP_API hipError_t hipDevicePrimaryCtxRelease(int) { return hipSuccess; }
HIP_API hipError_t hipProfilerStart() { return hipSuccess; }
HIP_API hipError_t hipProfilerStop() { return hipSuccess; }
