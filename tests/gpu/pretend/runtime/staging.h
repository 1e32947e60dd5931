// Shared memory through which pageable memory of the host is copied.
#pragma once

#include <cstddef>
#include <memory>

namespace pretend {

// A buffer of at least so many bytes that this process and its devices have mapped; it goes back to
// a pool with the last copy of the pointer. Null where there is no memory.
std::shared_ptr<char> staging_buffer(size_t nbytes);

}  // namespace pretend
