#include "runtime/memory.h"

#include <map>
#include <mutex>

#include "runtime/settings.h"

namespace pretend {
namespace {

constexpr size_t kBlock = 2 << 20;  // small allocations share so much, as those of a driver do
constexpr size_t kSmall = 1 << 20;  // shorter ones are small
constexpr size_t kAlignment = 512;
constexpr size_t kMost = size_t{1} << 42;  // bytes at a time, so that sums do not overflow

// Never destroyed: the process ends with all of it.
auto& allocations = *new std::map<char*, Allocation>;
// Of each device the one that is being filled.
auto& small_blocks = *new std::map<int, std::shared_ptr<Mapping>>;
auto& used = *new std::map<int, size_t>;

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

}  // namespace pretend
