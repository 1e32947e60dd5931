#include "runtime/registered.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

#include "runtime/device.h"

namespace pretend {
namespace {

struct Range {
  uintptr_t end;
  std::shared_ptr<int> users = std::make_shared<int>();  // the copies under way have it, too
};

// By where each begins. Never destroyed: the process ends with it.
auto& ranges = *new std::map<uintptr_t, Range>;

// The range that begins at an address or before it, if it reaches beyond it.
auto range_of(uintptr_t at) {
  auto found = ranges.upper_bound(at);
  if (found == ranges.begin()) return ranges.end();
  --found;
  return at < found->second.end ? found : ranges.end();
}

}  // namespace

hipError_t register_host(void* address, size_t nbytes) {
  const std::lock_guard<std::recursive_mutex> lock(state_mutex());
  const auto begin = reinterpret_cast<uintptr_t>(address), end = begin + nbytes;
  if (!begin || end <= begin) return hipErrorInvalidValue;
  const auto next = ranges.lower_bound(begin);
  const bool overlaps = next != ranges.end() && next->first < end;
  if (overlaps || range_of(begin) != ranges.end()) return hipErrorHostMemoryAlreadyRegistered;
  ranges[begin] = {end};
  return hipSuccess;
}

hipError_t unregister_host(void* address) {
  const std::lock_guard<std::recursive_mutex> lock(state_mutex());
  const auto found = ranges.find(reinterpret_cast<uintptr_t>(address));
  if (found == ranges.end()) return hipErrorHostMemoryNotRegistered;
  if (found->second.users.use_count() > 1) {
    std::fprintf(stderr, "pretended GPU: %p is unregistered, and copies are under way\n", address);
    std::abort();
  }
  ranges.erase(found);
  return hipSuccess;
}

bool is_registered(const void* pointer, size_t nbytes) {
  const std::lock_guard<std::recursive_mutex> lock(state_mutex());
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  const auto found = range_of(begin);
  return found != ranges.end() && begin + nbytes <= found->second.end;
}

std::shared_ptr<void> use_registered(const void* pointer) {
  const std::lock_guard<std::recursive_mutex> lock(state_mutex());
  const auto found = range_of(reinterpret_cast<uintptr_t>(pointer));
  return found == ranges.end() ? nullptr : found->second.users;
}

}  // namespace pretend
