// Memory of the host that exists already, and was pinned where it is (hipHostRegister). Copies take
// it for pinned; no device has it mapped, so no kernel can use it.
#pragma once

#include <cstddef>
#include <memory>

#include "runtime/interface/hip_api.h"

namespace pretend {

hipError_t register_host(void* address, size_t nbytes);
// Ends the process if copies to or from it are under way: on a GPU they could go anywhere then.
hipError_t unregister_host(void* address);

// Whether all of a range was registered at once.
bool is_registered(const void* pointer, size_t nbytes);

// What a copy holds as long as it is under way.
std::shared_ptr<void> use_registered(const void* pointer);

}  // namespace pretend
