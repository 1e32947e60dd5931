// Memory of devices and pinned memory: where it is, whose it is, and who has mapped it.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

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

struct Allocation {
  char* address;
  size_t nbytes;
  std::shared_ptr<Mapping> mapping;

  bool is_on_device() const {
    return mapping->kind != Kind::kPinned && mapping->kind != Kind::kManaged;
  }
  bool is_managed() const { return mapping->kind == Kind::kManaged; }
};

// Whether an address is one that only memory of devices and pinned memory have or had.
bool is_in_arena(const void* pointer);

// The allocation that a pointer leads into.
std::optional<Allocation> find_allocation(const void* pointer);

hipError_t allocate(void** address, size_t nbytes, Kind kind);

// Make a file that exists known as memory: of another process, or shared with one.
hipError_t import_file(void** address, size_t nbytes, int file, Kind kind);

// Forget the allocation that begins at an address, and free it if nothing else uses its mapping.
hipError_t release(void* address, bool is_imported);

// How much of a device's memory this process has allocated.
size_t used_bytes(int device);

// Map all memory of the host that devices may use, in a device that was just started.
void map_shared_memory(Device* device);

// Let `from` use the memory of `to`, that of now and that of later.
hipError_t enable_peer(int from, int to);
hipError_t disable_peer(int from, int to);
bool has_peer(int from, int to);

}  // namespace pretend
