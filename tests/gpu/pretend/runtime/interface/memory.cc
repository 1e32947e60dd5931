// Memory of devices, pinned memory, and memory of other processes, as HIP calls them.
#include "runtime/memory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "runtime/interface/errors.h"
#include "runtime/internal.h"
#include "runtime/registered.h"
#include "runtime/settings.h"
#include "runtime/streams.h"

namespace {

using pretend::error_of;
using pretend::Kind;
using pretend::remember;

hipError_t new_memory(void** address, size_t nbytes, Kind kind) {
  pretend::Device* const device = pretend::device(pretend::current_device());
  if (!device) return remember(hipErrorNotInitialized);
  if (const hipError_t error = device->error()) return remember(error);
  const hipError_t error = pretend::allocate(address, nbytes, kind);
  pretend::trace("allocate %zu bytes at %p", nbytes, *address);
  return remember(error);
}

hipError_t give_back(void* address, bool is_imported) {
  if (!address) return hipSuccess;
  if (pretend::is_forked()) return remember(hipErrorNotInitialized);
  const auto found = pretend::find_allocation(address);
  if (!found || found->mapping->kind == Kind::kVariables) return remember(hipErrorInvalidValue);
  const int device = found->mapping->device;
  pretend::wait_for_device(device);
  pretend::trace("release %p", address);
  const hipError_t error = pretend::release(address, is_imported);
  return remember(error ? error : error_of(device));
}

// What goes through hipIpcMemHandle_t: where to find the file. Of the whole mapping: at which
// allocation in it the pointer lies is lost, as on a GPU.
struct MemoryHandle {
  char magic[8];
  pid_t process;
  int file, physical_device;
  uint64_t nbytes, inode;
};
constexpr char kMemoryMagic[8] = "p-memor";

int physical(int device) { return pretend::settings().devices[static_cast<size_t>(device)]; }

}  // namespace

HIP_API hipError_t hipMalloc(void** address, size_t nbytes) {
  return new_memory(address, nbytes, Kind::kDevice);
}
HIP_API hipError_t hipMallocManaged(void** address, size_t nbytes, unsigned) {
  return new_memory(address, nbytes, Kind::kManaged);
}
HIP_API hipError_t hipHostMalloc(void** address, size_t nbytes, unsigned) {
  return new_memory(address, nbytes, Kind::kPinned);
}
HIP_API hipError_t hipFree(void* address) { return give_back(address, false); }
HIP_API hipError_t hipHostFree(void* address) { return give_back(address, false); }
HIP_API hipError_t hipHostRegister(void* address, size_t nbytes, unsigned) {
  if (const hipError_t error = error_of(pretend::current_device())) return remember(error);
  return remember(pretend::register_host(address, nbytes));
}
HIP_API hipError_t hipHostUnregister(void* address) {
  if (pretend::is_forked()) return remember(hipErrorNotInitialized);
  return remember(pretend::unregister_host(address));
}
HIP_API hipError_t hipMemGetInfo(size_t* free, size_t* total) {
  if (const hipError_t error = error_of(pretend::current_device())) return remember(error);
  *total = pretend::settings().memory_bytes;
  *free = *total - pretend::used_bytes(pretend::current_device());
  return hipSuccess;
}
HIP_API hipError_t hipMemAdvise(const void*, size_t, int, int) { return hipSuccess; }
HIP_API hipError_t hipMemPrefetchAsync(const void*, size_t, int, hipStream_t) { return hipSuccess; }
HIP_API hipError_t hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* pointer) {
  std::memset(attributes, 0, sizeof *attributes);
  const auto found = pretend::find_allocation(pointer);
  if (!found) {  // the pointers stay null, as in ROCm
    const bool is_registered = pretend::is_registered(pointer, 1);
    attributes->type = is_registered ? hipMemoryTypeHost : hipMemoryTypeUnregistered;
    attributes->device = is_registered ? pretend::current_device() : -2;
    if (is_registered) attributes->hostPointer = const_cast<void*>(pointer);
    return hipSuccess;
  }
  const Kind kind = found->mapping->kind;
  attributes->type = kind == Kind::kPinned    ? hipMemoryTypeHost
                     : kind == Kind::kManaged ? hipMemoryTypeManaged
                                              : hipMemoryTypeDevice;
  attributes->device = found->mapping->device;
  attributes->devicePointer = const_cast<void*>(pointer);
  attributes->isManaged = kind == Kind::kManaged;
  if (!found->is_on_device()) attributes->hostPointer = const_cast<void*>(pointer);
  return hipSuccess;
}

HIP_API hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t* out, void* pointer) {
  if (pretend::is_forked()) return remember(hipErrorNotInitialized);
  const auto found = pretend::find_allocation(pointer);
  if (!found || found->mapping->kind != Kind::kDevice) return remember(hipErrorInvalidValue);
  if (const hipError_t error = error_of(found->mapping->device)) return remember(error);
  struct stat status;
  if (fstat(found->mapping->file, &status)) return remember(hipErrorInvalidValue);
  MemoryHandle handle = {};
  std::memcpy(handle.magic, kMemoryMagic, sizeof kMemoryMagic);
  handle.process = getpid();
  handle.file = found->mapping->file;
  handle.physical_device = physical(found->mapping->device);
  handle.nbytes = found->mapping->nbytes;
  handle.inode = status.st_ino;
  static_assert(sizeof handle <= sizeof *out);
  std::memset(out, 0, sizeof *out);
  std::memcpy(out, &handle, sizeof handle);
  return hipSuccess;
}
HIP_API hipError_t hipIpcOpenMemHandle(void** address, hipIpcMemHandle_t in, unsigned) {
  MemoryHandle handle;
  std::memcpy(&handle, &in, sizeof handle);
  if (std::memcmp(handle.magic, kMemoryMagic, sizeof kMemoryMagic))
    return remember(hipErrorInvalidValue);
  if (handle.process == getpid()) return remember(hipErrorInvalidContext);
  const bool is_same = handle.physical_device == physical(pretend::current_device()) &&
                       !pretend::settings().is_separate;
  if (!is_same && !pretend::settings().has_peers) return remember(hipErrorPeerAccessUnsupported);
  if (!pretend::device(pretend::current_device())) return remember(hipErrorNotInitialized);
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/fd/%d", handle.process, handle.file);
  const int file = open(path, O_RDWR | O_CLOEXEC);
  struct stat status;
  if (file < 0 || fstat(file, &status) || status.st_ino != handle.inode) {  // closed since
    if (file >= 0) close(file);
    return remember(hipErrorMapFailed);
  }
  // Opened twice, HIP does not promise the same pointer, as CUDA does: here it never is.
  return remember(pretend::import_file(address, handle.nbytes, file, Kind::kImported));
}
HIP_API hipError_t hipIpcCloseMemHandle(void* address) { return give_back(address, true); }

HIP_API hipError_t pretend_share(int file, size_t nbytes, void** address) {
  if (!pretend::device(pretend::current_device())) return hipErrorNotInitialized;
  return pretend::import_file(address, nbytes, fcntl(file, F_DUPFD_CLOEXEC, 0), Kind::kPinned);
}
HIP_API hipError_t pretend_unshare(void* address) { return pretend::release(address, false); }
HIP_API hipError_t pretend_place(const void* pointer, int* device, size_t* left) {
  const auto found = pretend::find_allocation(pointer);
  const bool is_on_device = found && found->is_on_device();
  *device = is_on_device ? found->mapping->device : -1;
  *left = is_on_device ? found->nbytes -
                             static_cast<size_t>(static_cast<const char*>(pointer) - found->address)
                       : 0;
  return hipSuccess;
}
HIP_API hipError_t pretend_enqueue(int index, hipStream_t handle, void (*work)(void*),
                                   void* argument) {
  const int before = pretend::current_device();
  pretend::set_current_device(index);
  pretend::Stream* const stream = pretend::stream_of(handle);
  pretend::set_current_device(before);
  if (!stream || stream->device()->index() != index) return hipErrorInvalidHandle;
  if (const hipError_t error = stream->device()->error()) return error;
  pretend::enqueue_host(stream, [=] { work(argument); });
  return hipSuccess;
}
