// Files that are memory of devices, or pinned: at which address, and which processes have them.
#pragma once

#include <cstddef>
#include <memory>

#include "runtime/device.h"
#include "runtime/interface/hip_api.h"

namespace pretend {

enum class Kind { kDevice, kImported, kVariables, kPinned, kManaged };

// A file mapped at one address in this process and in those of some devices.
struct Mapping {
  char* address;
  size_t nbytes;
  int file;
  Kind kind;
  int device;       // whose memory it is; that which was current, for memory of the host
  size_t used = 0;  // of a mapping that several small allocations share
  int allocations = 0;
  ~Mapping();
};

size_t rounded(size_t nbytes, size_t step);

// Whether an address is one that only memory of devices and pinned memory have or had.
bool is_in_arena(const void* pointer);

// Map a file at a new address: for the host only where it may use it, for devices that see it. The
// mapping closes it. Called with state_mutex() held.
std::shared_ptr<Mapping> map_file(size_t nbytes, int file, Kind kind, bool is_fresh,
                                  hipError_t* error);

// Map a new file, full of rubbish. Called with state_mutex() held.
std::shared_ptr<Mapping> new_mapping(size_t nbytes, Kind kind, hipError_t* error);

// Map all memory of the host that devices may use, in a device that was just started.
void map_shared_memory(Device* device);

// Let `from` use the memory of `to`, that of now and that of later.
hipError_t enable_peer(int from, int to);
hipError_t disable_peer(int from, int to);
bool has_peer(int from, int to);

}  // namespace pretend
