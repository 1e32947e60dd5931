// CUDA's runtime as NVIDIA's headers declare it, and ours behind it.
#pragma once

#include <cuda_runtime_api.h>

#define dim3 PretendDim3  // each of them declares one
#include "runtime/interface/errors.h"
#undef dim3

// What passes from one to the other has the same numbers.
static_assert(cudaErrorInvalidValue == static_cast<int>(hipErrorInvalidValue));
static_assert(cudaErrorIllegalAddress == static_cast<int>(hipErrorIllegalAddress));
static_assert(cudaErrorLaunchFailure == static_cast<int>(hipErrorLaunchFailure));
static_assert(cudaErrorNotSupported == static_cast<int>(hipErrorNotSupported));
static_assert(cudaMemcpyDefault == static_cast<int>(hipMemcpyDefault));
static_assert(cudaMemcpyDeviceToHost == static_cast<int>(hipMemcpyDeviceToHost));
static_assert(cudaMemoryTypeManaged == static_cast<int>(hipMemoryTypeManaged));
static_assert(cudaMemoryTypeDevice == static_cast<int>(hipMemoryTypeDevice));
static_assert(cudaStreamNonBlocking == static_cast<int>(hipStreamNonBlocking));
static_assert(cudaEventInterprocess == static_cast<int>(hipEventInterprocess));
static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(hipIpcMemHandle_t));
static_assert(sizeof(cudaIpcEventHandle_t) == sizeof(hipIpcEventHandle_t));

#define CUDA_API extern "C" __attribute__((visibility("default")))
