// What the device needs of HIP, an open interface; and what all functions of the device need.

#pragma once

#include <cstddef>
#include <string>

#include "tensorflow/c/experimental/stream_executor/stream_executor.h"

extern "C" {
int hipGetDeviceCount(int* count);
int hipGetDevice(int* device);
int hipSetDevice(int device);
int hipDeviceSynchronize();
int hipMemGetInfo(size_t* free, size_t* total);
int hipMalloc(void** address, size_t size);
int hipFree(void* address);
int hipHostMalloc(void** address, size_t size, unsigned flags);
int hipHostFree(void* address);
int hipMemcpy(void* target, const void* source, size_t size, int kind);
int hipMemcpyAsync(void* target, const void* source, size_t size, int kind, void* stream);
int hipMemsetAsync(void* target, int value, size_t size, void* stream);
int hipStreamCreateWithFlags(void** stream, unsigned flags);
int hipStreamDestroy(void* stream);
int hipStreamQuery(void* stream);
int hipStreamSynchronize(void* stream);
int hipStreamWaitEvent(void* stream, void* event, unsigned flags);
int hipEventCreateWithFlags(void** event, unsigned flags);
int hipEventDestroy(void* event);
int hipEventRecord(void* event, void* stream);
int hipEventQuery(void* event);
int hipEventSynchronize(void* event);
int hipLaunchHostFunc(void* stream, void (*function)(void*), void* argument);
}

namespace device {

constexpr int kSuccess = 0, kNotReady = 600;
constexpr int kToDevice = 1, kToHost = 2, kOnDevice = 3;  // kinds of copies
constexpr unsigned kNonBlocking = 1, kNoTiming = 2;       // flags of streams, of events

// Makes a device the current one of this thread while it lives.
class Current {
 public:
  explicit Current(const SP_Device* device) {
    hipGetDevice(&before_);
    hipSetDevice(device->ordinal);
  }
  ~Current() { hipSetDevice(before_); }

 private:
  int before_ = 0;
};

inline void tell(TF_Status* status, int error, const char* what) {
  if (error == kSuccess) return TF_SetStatus(status, TF_OK, "");
  const std::string text = std::string(what) + ": HIP's error " + std::to_string(error);
  TF_SetStatus(status, TF_INTERNAL, text.c_str());
}

}  // namespace device
