// What this library asks of the runtime beside it (libamdhip64.so.7), in one place.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "nccl/interface/nccl.h"

namespace pretend {

int current_device();
void set_device(int device);

// The name of the physical device behind a device of this process (its PCI bus id).
std::string physical_device(int device);

// Run `work` in the thread of a stream, ordered with the device's work. 0, or HIP's error.
int enqueue(int device, hipStream_t stream, std::function<void()> work);

// Let the later work of `stream` wait for the work that is now on `other`. 0, or HIP's error.
int order_after(int device, hipStream_t stream, hipStream_t other);

// Copy between memory of the device and memory of share(), in the device's process. 0, or an error.
int copy_on_device(int device, void* to, const void* from, size_t nbytes);

// Map a file in this process and in those of its devices, at one address. 0, or an error.
int share(int fd, size_t nbytes, void** address);
void unshare(void* address, size_t nbytes);

// Where a pointer leads: `device` is -1 outside of device memory, and `left` says how many bytes
// of its allocation follow the pointer.
struct Place {
  int device = -1;
  size_t left = 0;
};
Place place_of(const void* pointer);

}  // namespace pretend
