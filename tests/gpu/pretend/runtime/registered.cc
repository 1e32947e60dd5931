#include "runtime/registered.h"

#include <cstdint>
#include <map>
#include <mutex>

#include "runtime/device.h"

namespace pretend {
namespace {

// Where each range begins and ends. Never destroyed: the process ends with it.
auto& ranges = *new std::map<uintptr_t, uintptr_t>;

// The range that begins at an address or before it, if it reaches beyond it.
auto range_of(uintptr_t at) {
  auto found = ranges.upper_bound(at);
  if (found == ranges.begin()) return ranges.end();
  --found;
  return at < found->second ? found : ranges.end();
}

}  // namespace

hipError_t register_host(void* address, size_t nbytes) {
  const std::lock_guard<std::recursive_mutex> lock(state_mutex());
  const auto begin = reinterpret_cast<uintptr_t>(address), end = begin + nbytes;
  if (!begin || end <= begin) return hipErrorInvalidValue;
  const auto next = ranges.lower_bound(begin);
  const bool overlaps = next != ranges.end() && next->first < end;
  if (overlaps || range_of(begin) != ranges.end()) return hipErrorHostMemoryAlreadyRegistered;
  ranges[begin] = end;
  return hipSuccess;
}

hipError_t unregister_host(void* address) {
  const std::lock_guard<std::recursive_mutex> lock(state_mutex());
  const bool was_there = ranges.erase(reinterpret_cast<uintptr_t>(address)) == 1;
  return was_there ? hipSuccess : hipErrorHostMemoryNotRegistered;
}

bool is_registered(const void* pointer, size_t nbytes) {
  const std::lock_guard<std::recursive_mutex> lock(state_mutex());
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  const auto found = range_of(begin);
  return found != ranges.end() && begin + nbytes <= found->second;
}

}  // namespace pretend
