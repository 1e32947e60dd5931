// Copies and fills, as HIP calls them.
//
// Pageable memory is read before the call returns, and written before it returns; pinned memory,
// also that which was registered, is read and written when the stream comes to the copy, as a GPU's
// copy engine does.
#include <cstring>
#include <vector>

#include "runtime/interface/errors.h"
#include "runtime/memory.h"
#include "runtime/registered.h"
#include "runtime/settings.h"
#include "runtime/staging.h"
#include "runtime/streams.h"

namespace {

using pretend::Allocation;
using pretend::Connection;
using pretend::Device;
using pretend::enqueue;
using pretend::Kind;
using pretend::MarkPtr;
using pretend::remember;
using pretend::Request;
using pretend::Stream;
using pretend::stream_of;

// One side of a copy.
struct Side {
  char* at;
  int device = -1;             // whose memory it is; -1: the host's
  bool is_pageable = true;     // memory that no device has mapped
  bool is_valid = true;        // the whole range is in one allocation
  bool is_managed = false;     // the host's and the device's
  bool is_registered = false;  // pinned where it is, but no device has mapped it
};

Side side_of(const void* pointer, size_t nbytes) {
  Side side = {static_cast<char*>(const_cast<void*>(pointer))};
  const auto found = pretend::find_allocation(pointer);
  if (!found) {
    side.is_valid = !pretend::is_in_arena(pointer);  // else it was freed, or is beyond an end
    side.is_registered = pretend::is_registered(pointer, nbytes);
    return side;
  }
  side.is_pageable = false;
  side.is_managed = found->is_managed();
  side.is_valid = nbytes <= found->nbytes - static_cast<size_t>(side.at - found->address);
  if (found->is_on_device()) side.device = found->mapping->device;
  return side;
}

bool is_side(const Side& side, bool is_host) {
  return side.is_managed || (side.device < 0) == is_host;
}

bool fits(hipMemcpyKind kind, const Side& to, const Side& from) {
  switch (kind) {
    case hipMemcpyHostToHost:
      return is_side(to, true) && is_side(from, true);
    case hipMemcpyHostToDevice:
      return is_side(to, false) && is_side(from, true);
    case hipMemcpyDeviceToHost:
      return is_side(to, true) && is_side(from, false);
    case hipMemcpyDeviceToDevice:
      return is_side(to, false) && is_side(from, false);
    default:
      return kind == hipMemcpyDefault;
  }
}

void copy_by(Connection& connection, void* to, const void* from, size_t nbytes) {
  Request request = pretend::request_for(pretend::Task::kCopy);
  request.address = reinterpret_cast<uint64_t>(to);
  request.source = reinterpret_cast<uint64_t>(from);
  request.nbytes = nbytes;
  connection.perform(request);
}

// Copy in the thread of a stream of `device`; no side is pageable.
void copy_now(Connection& connection, int device, const Side& to, const Side& from, size_t nbytes) {
  const bool sees_to = to.device < 0 || pretend::has_peer(device, to.device);
  const bool sees_from = from.device < 0 || pretend::has_peer(device, from.device);
  if (sees_to && sees_from) {
    copy_by(connection, to.at, from.at, nbytes);
    return;
  }
  // Devices without access to one another: through the host, as a driver does it.
  const auto buffer = pretend::staging_buffer(nbytes);
  if (!buffer) {
    pretend::device(device)->fail(hipErrorOutOfMemory);
    return;
  }
  copy_by(pretend::device(from.device < 0 ? device : from.device)->control(), buffer.get(), from.at,
          nbytes);
  copy_by(pretend::device(to.device < 0 ? device : to.device)->control(), to.at, buffer.get(),
          nbytes);
}

hipError_t error_without_buffer(int device) {
  const hipError_t error = pretend::error_of(device);
  return error ? error : hipErrorOutOfMemory;
}

bool are_on(const void* to, int to_device, const void* from, int from_device) {
  return side_of(to, 1).device == to_device && side_of(from, 1).device == from_device;
}

hipError_t copy(Side to, Side from, size_t nbytes, hipStream_t where) {
  Stream* const stream = stream_of(where);
  if (const hipError_t error = pretend::error_of(stream)) return error;
  const int device = stream->device()->index();
  if (to.is_pageable && from.is_pageable) {  // both on the host: in the order of the stream
    pretend::enqueue_host(stream, [=] { std::memmove(to.at, from.at, nbytes); })->wait();
    return stream->device()->error();
  }
  std::shared_ptr<char> buffer;
  char *const written = to.at, *const read = from.at;
  const bool is_up = from.is_pageable, is_down = to.is_pageable;
  if (is_up || is_down) {
    buffer = pretend::staging_buffer(nbytes);
    if (!buffer) return error_without_buffer(device);
    if (is_up && !from.is_registered) std::memcpy(buffer.get(), from.at, nbytes);
    (is_up ? from : to).at = buffer.get();
    (is_up ? from : to).is_pageable = false;
  }
  const auto uses = {pretend::use_registered(read), pretend::use_registered(written)};
  const MarkPtr mark = enqueue(stream, [=, uses = std::vector(uses)](Connection& connection) {
    if (from.is_registered) std::memcpy(buffer.get(), read, nbytes);
    copy_now(connection, device, to, from, nbytes);
    if (to.is_registered && !pretend::error_of(device)) std::memcpy(written, buffer.get(), nbytes);
    (void)buffer;  // until the copy is done, as `uses`
  });
  if (is_down && !to.is_registered) {
    mark->wait();
    if (!stream->device()->error()) std::memcpy(written, buffer.get(), nbytes);
  }
  return stream->device()->error();
}

}  // namespace

HIP_API hipError_t hipMemcpyAsync(void* to, const void* from, size_t nbytes, hipMemcpyKind kind,
                                  hipStream_t stream) {
  if (pretend::is_forked()) return remember(hipErrorNotInitialized);
  if (!nbytes) return hipSuccess;
  const Side there = side_of(to, nbytes), here = side_of(from, nbytes);
  if (!there.is_valid || !here.is_valid || !fits(kind, there, here))
    return remember(hipErrorInvalidValue);
  pretend::trace("copy %zu bytes to %p from %p", nbytes, to, from);
  return remember(copy(there, here, nbytes, stream));
}
HIP_API hipError_t hipMemcpy(void* to, const void* from, size_t nbytes, hipMemcpyKind kind) {
  if (const hipError_t error = hipMemcpyAsync(to, from, nbytes, kind, nullptr)) return error;
  // Between two places of one device the call returns before the copy is done, as on a GPU.
  const bool is_host = side_of(to, 1).device < 0 || side_of(from, 1).device < 0;
  Stream* const stream = stream_of(nullptr);
  if (is_host && stream)
    if (const MarkPtr tail = stream->tail()) tail->wait();
  return remember(pretend::error_of(stream));
}
HIP_API hipError_t hipMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                      size_t nbytes, hipStream_t stream) {
  if (!are_on(to, to_device, from, from_device)) return remember(hipErrorInvalidValue);
  return hipMemcpyAsync(to, from, nbytes, hipMemcpyDeviceToDevice, stream);
}
HIP_API hipError_t hipMemcpyPeer(void* to, int to_device, const void* from, int from_device,
                                 size_t nbytes) {
  if (!are_on(to, to_device, from, from_device)) return remember(hipErrorInvalidValue);
  return hipMemcpy(to, from, nbytes, hipMemcpyDeviceToDevice);
}
HIP_API hipError_t hipMemsetAsync(void* to, int value, size_t nbytes, hipStream_t where) {
  if (pretend::is_forked()) return remember(hipErrorNotInitialized);
  if (!nbytes) return hipSuccess;
  const Side side = side_of(to, nbytes);
  if (!side.is_valid || side.is_pageable) return remember(hipErrorInvalidValue);
  Stream* const stream = stream_of(where);
  if (const hipError_t error = pretend::error_of(stream)) return remember(error);
  Request request = pretend::request_for(pretend::Task::kFill);
  request.address = reinterpret_cast<uint64_t>(to);
  request.nbytes = nbytes;
  request.value = static_cast<uint64_t>(value);
  pretend::trace("fill %zu bytes at %p", nbytes, to);
  enqueue(stream, [request](Connection& connection) { connection.perform(request); });
  return remember(stream->device()->error());
}
HIP_API hipError_t hipMemset(void* to, int value, size_t nbytes) {
  return hipMemsetAsync(to, value, nbytes, nullptr);
}
HIP_API hipError_t pretend_copy(int index, void* to, const void* from, size_t nbytes) {
  Device* const device = pretend::device(index);
  if (!device) return hipErrorInvalidDevice;
  copy_by(device->control(), to, from, nbytes);
  return device->error();
}
