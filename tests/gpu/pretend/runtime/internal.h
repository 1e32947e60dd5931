// What libraries beside the runtime (NCCL's stand-in) need of it that HIP's interface has not.
#pragma once

#include <cstddef>

#include "runtime/interface/hip_api.h"

extern "C" {
// Call `work(argument)` in the thread of a stream of the device, ordered with the device's work;
// also where the device is lost meanwhile.
hipError_t pretend_enqueue(int device, hipStream_t stream, void (*work)(void*), void* argument);

// Copy between memory of a device and shared memory, done by the device's process when it is
// called: from a function that pretend_enqueue calls.
hipError_t pretend_copy(int device, void* to, const void* from, size_t nbytes);

// Map a file in this process and in those of all its devices, at one address, as pinned memory is.
hipError_t pretend_share(int file, size_t nbytes, void** address);
hipError_t pretend_unshare(void* address);

// The device whose memory a pointer leads to, and how many bytes of its allocation follow; -1 and 0
// for memory of the host.
hipError_t pretend_place(const void* pointer, int* device, size_t* left);
}
