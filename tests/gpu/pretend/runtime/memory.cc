#include "runtime/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "runtime/interface/errors.h"
#include "runtime/settings.h"

namespace pretend {
namespace {

constexpr size_t kBlock = 2 << 20;  // small allocations share so much, as those of a driver do
constexpr size_t kSmall = 1 << 20;  // shorter ones are small
constexpr size_t kAlignment = 512;
constexpr size_t kPage = 4096;
constexpr size_t kMost = size_t{1} << 42;  // bytes at a time, so that sums do not overflow
// Nothing else is here, in this process or in a device's; addresses are used once.
constexpr uintptr_t kArena = 0x200000000000;

std::atomic<uintptr_t> next_address = kArena;
// Never destroyed: the process ends with all of it.
auto& allocations = *new std::map<char*, Allocation>;
// Of each device the one that is being filled.
auto& small_blocks = *new std::map<int, std::shared_ptr<Mapping>>;
auto& used = *new std::map<int, size_t>;
auto& peers = *new std::set<std::pair<int, int>>;

size_t rounded(size_t nbytes, size_t step) { return (nbytes + step - 1) / step * step; }

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

// Map a file at a new address: for the host only where it may use it, for devices that see it.
std::shared_ptr<Mapping> map_file(size_t nbytes, int file, Kind kind, bool is_fresh,
                                  hipError_t* error) {
  void* const wanted = reinterpret_cast<void*>(next_address.load());
  next_address += rounded(nbytes, kBlock) + kBlock;  // a gap, so that running over faults
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
  return map_file(nbytes, file, kind, kind == Kind::kDevice, error);
}

void fill(const Allocation& one, int value) {
  Request request = request_for(Task::kFill);
  request.address = reinterpret_cast<uint64_t>(one.address);
  request.nbytes = one.nbytes;
  request.value = static_cast<uint64_t>(value);
  device(one.mapping->device)->control().perform(request);
}

// A part of the block that the small allocations of a device share.
hipError_t allocate_small(size_t nbytes, Allocation* found) {
  auto& block = small_blocks[current_device()];
  if (!block || block->used + nbytes > block->nbytes) {
    hipError_t error;
    block = new_mapping(kBlock, Kind::kDevice, &error);
    if (error) return error;
  }
  *found = {block->address + block->used, nbytes, block};
  block->used += rounded(nbytes, kAlignment);
  fill(*found, kRubbish);
  return hipSuccess;
}

void keep(const Allocation& one) {
  allocations[one.address] = one;
  ++one.mapping->allocations;
}

}  // namespace

Mapping::~Mapping() {
  for (Device* one : started_devices())
    if (sees(one->index(), *this)) unmap_in(one, *this);  // on a lost device nothing is left to do
  munmap(address, nbytes);
  close(file);
}

bool is_in_arena(const void* pointer) {
  const auto at = reinterpret_cast<uintptr_t>(pointer);
  return at >= kArena && at < next_address;
}

std::optional<Allocation> find_allocation(const void* pointer) {
  if (is_forked()) return std::nullopt;
  const std::lock_guard<std::recursive_mutex> lock(state_mutex());
  char* const at = static_cast<char*>(const_cast<void*>(pointer));
  auto found = allocations.upper_bound(at);
  if (found == allocations.begin()) return std::nullopt;
  --found;
  if (at >= found->second.address + found->second.nbytes) return std::nullopt;
  return found->second;
}

hipError_t allocate(void** address, size_t nbytes, Kind kind) {
  *address = nullptr;
  if (!nbytes) return hipSuccess;
  const std::lock_guard<std::recursive_mutex> lock(state_mutex());
  if (nbytes > kMost) return hipErrorOutOfMemory;
  const bool is_limited = kind != Kind::kPinned;
  if (is_limited && used[current_device()] + nbytes > settings().memory_bytes)
    return hipErrorOutOfMemory;
  Allocation one;
  hipError_t error = hipSuccess;
  if (kind == Kind::kDevice && nbytes < kSmall) {
    error = allocate_small(nbytes, &one);
  } else {
    const auto mapping = new_mapping(nbytes, kind, &error);
    if (!error) one = {mapping->address, nbytes, mapping};
  }
  if (error) return error;
  if (is_limited) used[current_device()] += nbytes;
  keep(one);
  *address = one.address;
  return hipSuccess;
}

hipError_t import_file(void** address, size_t nbytes, int file, Kind kind) {
  const std::lock_guard<std::recursive_mutex> lock(state_mutex());
  hipError_t error;
  const auto mapping = map_file(nbytes, file, kind, false, &error);
  if (error) return error;
  keep({mapping->address, nbytes, mapping});
  *address = mapping->address;
  return hipSuccess;
}

hipError_t release(void* address, bool is_imported) {
  const std::lock_guard<std::recursive_mutex> lock(state_mutex());
  const auto found = allocations.find(static_cast<char*>(address));
  if (found == allocations.end()) return hipErrorInvalidValue;
  const Allocation one = found->second;
  if ((one.mapping->kind == Kind::kImported) != is_imported) return hipErrorInvalidValue;
  allocations.erase(found);
  if (one.mapping->kind == Kind::kDevice || one.mapping->kind == Kind::kManaged)
    used[one.mapping->device] -= one.nbytes;
  if (--one.mapping->allocations == 0) {
    const auto block = small_blocks.find(one.mapping->device);
    if (block != small_blocks.end() && block->second == one.mapping) small_blocks.erase(block);
  } else {
    fill(one, ~kRubbish & 0xff);  // who still reads it should notice
  }
  return hipSuccess;
}

size_t used_bytes(int device) {
  const std::lock_guard<std::recursive_mutex> lock(state_mutex());
  return used[device];
}

void map_shared_memory(Device* device) {
  const std::lock_guard<std::recursive_mutex> lock(state_mutex());
  for (const auto& [address, one] : allocations)
    if (is_for_host(one.mapping->kind)) map_in(device, *one.mapping, false);
}

hipError_t enable_peer(int from, int to) {
  const std::lock_guard<std::recursive_mutex> lock(state_mutex());
  if (!peers.insert({from, to}).second) return hipErrorPeerAccessAlreadyEnabled;
  Device* const user = device(from);
  std::set<Mapping*> done;
  for (const auto& [address, one] : allocations)
    if (one.is_on_device() && one.mapping->device == to && done.insert(one.mapping.get()).second)
      if (const hipError_t error = map_in(user, *one.mapping, false)) return error;
  return hipSuccess;
}

hipError_t disable_peer(int from, int to) {
  const std::lock_guard<std::recursive_mutex> lock(state_mutex());
  if (!peers.count({from, to})) return hipErrorPeerAccessNotEnabled;
  std::set<Mapping*> done;
  for (const auto& [address, one] : allocations)
    if (one.is_on_device() && one.mapping->device == to && done.insert(one.mapping.get()).second)
      unmap_in(device(from), *one.mapping);
  peers.erase({from, to});
  return hipSuccess;
}

bool has_peer(int from, int to) {
  const std::lock_guard<std::recursive_mutex> lock(state_mutex());
  return from == to || peers.count({from, to});
}

}  // namespace pretend
