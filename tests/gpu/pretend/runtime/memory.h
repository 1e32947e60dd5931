// Allocations: memory of devices and pinned memory, as the user gets it.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "runtime/interface/hip_api.h"
#include "runtime/mappings.h"

namespace pretend {

struct Allocation {
  char* address;
  size_t nbytes;
  std::shared_ptr<Mapping> mapping;

  bool is_on_device() const {
    return mapping->kind != Kind::kPinned && mapping->kind != Kind::kManaged;
  }
  bool is_managed() const { return mapping->kind == Kind::kManaged; }
};

// The allocation that a pointer leads into.
std::optional<Allocation> find_allocation(const void* pointer);

hipError_t allocate(void** address, size_t nbytes, Kind kind);

// Make a file that exists known as memory: of another process, or shared with one.
hipError_t import_file(void** address, size_t nbytes, int file, Kind kind);

// Forget the allocation that begins at an address, and free it if nothing else uses its mapping.
hipError_t release(void* address, bool is_imported);

// How much of a device's memory this process has allocated.
size_t used_bytes(int device);

}  // namespace pretend
