#include "runtime/mappings.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "runtime/interface/errors.h"
#include "runtime/settings.h"

namespace pretend {
namespace {

constexpr size_t kGap = 2 << 20;  // between mappings, so that running over faults
constexpr size_t kPage = 4096;
// Nothing else is here, in this process or in a device's; addresses are used once.
constexpr uintptr_t kArena = 0x200000000000;

std::atomic<uintptr_t> next_address = kArena;
// Never destroyed: the process ends with it.
auto& peers = *new std::set<std::pair<int, int>>;  // (from, to): `from` uses the memory of `to`
auto& mappings = *new std::set<Mapping*>;

bool is_for_host(Kind kind) { return kind == Kind::kPinned || kind == Kind::kManaged; }

// Whether a device's process has the mapping.
bool sees(int device, const Mapping& mapping) {
  return is_for_host(mapping.kind) || device == mapping.device ||
         peers.count({device, mapping.device});
}

// A device that is lost does not keep the others from getting memory.
bool is_needed(const Device& device, const Mapping& mapping) {
  return device.index() == mapping.device || !device.error();
}

hipError_t map_in(Device* device, const Mapping& mapping, bool is_fresh) {
  Request request = request_for(Task::kMap);
  request.address = reinterpret_cast<uint64_t>(mapping.address);
  request.nbytes = mapping.nbytes;
  request.value = is_fresh;
  Answer answer;
  const hipError_t error = device->control().perform(request, &answer, mapping.file);
  return error ? error : from_errno(answer.status);
}

hipError_t unmap_in(Device* device, const Mapping& mapping) {
  Request request = request_for(Task::kUnmap);
  request.address = reinterpret_cast<uint64_t>(mapping.address);
  request.nbytes = mapping.nbytes;
  return device->control().perform(request);
}

std::vector<Device*> started_devices() {
  std::vector<Device*> found;
  for (int i = 0; i < static_cast<int>(settings().devices.size()); ++i)
    if (Device* one = started_device(i)) found.push_back(one);
  return found;
}

// Memory of a device that others can be given access to.
bool is_of(int device, const Mapping& mapping) {
  return !is_for_host(mapping.kind) && mapping.device == device;
}

}  // namespace

size_t rounded(size_t nbytes, size_t step) { return (nbytes + step - 1) / step * step; }

std::shared_ptr<Mapping> map_file(size_t nbytes, int file, Kind kind, bool is_fresh,
                                  hipError_t* error) {
  void* const wanted = reinterpret_cast<void*>(next_address.load());
  next_address += rounded(nbytes, kGap) + kGap;
  const int access = is_for_host(kind) ? PROT_READ | PROT_WRITE : PROT_NONE;
  const int flags = is_for_host(kind) ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* const at =
      mmap(wanted, nbytes, access, flags | MAP_FIXED_NOREPLACE, is_for_host(kind) ? file : -1, 0);
  if (at != wanted) {
    *error = hipErrorMapFailed;
    close(file);
    return nullptr;
  }
  auto mapping = std::make_shared<Mapping>();
  mappings.insert(mapping.get());
  mapping->address = static_cast<char*>(at);
  mapping->nbytes = nbytes;
  mapping->file = file;
  mapping->kind = kind;
  mapping->device = current_device();
  *error = hipSuccess;
  if (!device(current_device())) *error = hipErrorNotInitialized;  // its process has to be there
  for (Device* one : started_devices())
    if (!*error && sees(one->index(), *mapping) && is_needed(*one, *mapping))
      *error = map_in(one, *mapping, is_fresh && one->index() == mapping->device);
  return *error ? nullptr : mapping;
}

std::shared_ptr<Mapping> new_mapping(size_t nbytes, Kind kind, hipError_t* error) {
  nbytes = rounded(nbytes, kPage);
  const int file = memfd_create("pretend-gpu", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(nbytes))) {
    if (file >= 0) close(file);
    *error = hipErrorOutOfMemory;
    return nullptr;
  }
  auto mapping = map_file(nbytes, file, kind, kind == Kind::kDevice, error);
  if (mapping && is_for_host(kind)) std::memset(mapping->address, kRubbish, nbytes);
  return mapping;
}

Mapping::~Mapping() {
  if (is_forked()) return;  // the parent's
  const std::lock_guard<std::recursive_mutex> lock(state_mutex());
  mappings.erase(this);
  for (Device* one : started_devices())
    if (sees(one->index(), *this)) unmap_in(one, *this);  // on a lost device nothing is left to do
  munmap(address, nbytes);
  close(file);
}

bool is_in_arena(const void* pointer) {
  const auto at = reinterpret_cast<uintptr_t>(pointer);
  return at >= kArena && at < next_address;
}

void map_shared_memory(Device* device) {
  const std::lock_guard<std::recursive_mutex> lock(state_mutex());
  for (const Mapping* one : mappings)
    if (is_for_host(one->kind)) map_in(device, *one, false);
}

hipError_t enable_peer(int from, int to) {
  const std::lock_guard<std::recursive_mutex> lock(state_mutex());
  if (!peers.insert({from, to}).second) return hipErrorPeerAccessAlreadyEnabled;
  for (const Mapping* one : mappings)
    if (is_of(to, *one))
      if (const hipError_t error = map_in(device(from), *one, false)) return error;
  return hipSuccess;
}

hipError_t disable_peer(int from, int to) {
  const std::lock_guard<std::recursive_mutex> lock(state_mutex());
  if (!peers.erase({from, to})) return hipErrorPeerAccessNotEnabled;
  for (const Mapping* one : mappings)
    if (is_of(to, *one)) unmap_in(device(from), *one);
  return hipSuccess;
}

bool has_peer(int from, int to) {
  const std::lock_guard<std::recursive_mutex> lock(state_mutex());
  return from == to || peers.count({from, to});
}

}  // namespace pretend
