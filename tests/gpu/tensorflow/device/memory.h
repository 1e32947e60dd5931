// The device's memory: allocations, copies, fills.

#pragma once

#include <cstdint>

#include "hip.h"

namespace device {
namespace {

void allocate(const SP_Device* device, uint64_t size, int64_t, SP_DeviceMemoryBase* memory) {
  const Current current(device);
  void* address = nullptr;
  const bool is_there = hipMalloc(&address, size) == kSuccess;
  memory->struct_size = SP_DEVICE_MEMORY_BASE_STRUCT_SIZE;
  memory->opaque = is_there ? address : nullptr;
  memory->size = is_there ? size : 0;
}

void deallocate(const SP_Device* device, SP_DeviceMemoryBase* memory) {
  const Current current(device);
  hipFree(memory->opaque);
  memory->opaque = nullptr;
  memory->size = 0;
}

void* allocate_on_host(const SP_Device* device, uint64_t size) {
  const Current current(device);
  void* address = nullptr;
  return hipHostMalloc(&address, size, 0) == kSuccess ? address : nullptr;
}

void deallocate_on_host(const SP_Device*, void* address) { hipHostFree(address); }

TF_Bool no_statistics(const SP_Device*, SP_AllocatorStats*) { return 0; }

TF_Bool usage(const SP_Device* device, int64_t* free, int64_t* total) {
  const Current current(device);
  size_t free_bytes = 0, total_bytes = 0;
  if (hipMemGetInfo(&free_bytes, &total_bytes) != kSuccess) return 0;
  *free = static_cast<int64_t>(free_bytes);
  *total = static_cast<int64_t>(total_bytes);
  return 1;
}

void copy_to_host(const SP_Device* device, SP_Stream stream, void* target,
                  const SP_DeviceMemoryBase* source, uint64_t size, TF_Status* status) {
  const Current current(device);
  tell(status, hipMemcpyAsync(target, source->opaque, size, kToHost, stream), "copy to the host");
}

void copy_to_device(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* target,
                    const void* source, uint64_t size, TF_Status* status) {
  const Current current(device);
  tell(status, hipMemcpyAsync(target->opaque, source, size, kToDevice, stream), "copy to device");
}

void copy_on_device(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* target,
                    const SP_DeviceMemoryBase* source, uint64_t size, TF_Status* status) {
  const Current current(device);
  const int error = hipMemcpyAsync(target->opaque, source->opaque, size, kOnDevice, stream);
  tell(status, error, "copy on the device");
}

void copy_to_host_now(const SP_Device* device, void* target, const SP_DeviceMemoryBase* source,
                      uint64_t size, TF_Status* status) {
  const Current current(device);
  tell(status, hipMemcpy(target, source->opaque, size, kToHost), "copy to the host");
}

void copy_to_device_now(const SP_Device* device, SP_DeviceMemoryBase* target, const void* source,
                        uint64_t size, TF_Status* status) {
  const Current current(device);
  tell(status, hipMemcpy(target->opaque, source, size, kToDevice), "copy to the device");
}

void copy_on_device_now(const SP_Device* device, SP_DeviceMemoryBase* target,
                        const SP_DeviceMemoryBase* source, uint64_t size, TF_Status* status) {
  const Current current(device);
  tell(status, hipMemcpy(target->opaque, source->opaque, size, kOnDevice), "copy on the device");
}

void fill_with_zeros(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* target,
                     uint64_t size, TF_Status* status) {
  const Current current(device);
  tell(status, hipMemsetAsync(target->opaque, 0, size, stream), "fill");
}

void fill_bytes(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* target,
                uint8_t value, uint64_t size, TF_Status* status) {
  const Current current(device);
  tell(status, hipMemsetAsync(target->opaque, value, size, stream), "fill");
}

void fill_words(const SP_Device*, SP_Stream, SP_DeviceMemoryBase*, uint32_t, uint64_t,
                TF_Status* status) {
  TF_SetStatus(status, TF_UNIMPLEMENTED, "fills of 32-bit words");
}

void add_memory(SP_StreamExecutor* executor) {
  executor->allocate = allocate;
  executor->deallocate = deallocate;
  executor->host_memory_allocate = allocate_on_host;
  executor->host_memory_deallocate = deallocate_on_host;
  executor->get_allocator_stats = no_statistics;
  executor->device_memory_usage = usage;
  executor->memcpy_dtoh = copy_to_host;
  executor->memcpy_htod = copy_to_device;
  executor->memcpy_dtod = copy_on_device;
  executor->sync_memcpy_dtoh = copy_to_host_now;
  executor->sync_memcpy_htod = copy_to_device_now;
  executor->sync_memcpy_dtod = copy_on_device_now;
  executor->mem_zero = fill_with_zeros;
  executor->memset = fill_bytes;
  executor->memset32 = fill_words;
}

}  // namespace
}  // namespace device
