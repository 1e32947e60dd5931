#include "runtime/staging.h"

#include <map>
#include <mutex>
#include <vector>

#include "runtime/memory.h"

namespace pretend {
namespace {

constexpr size_t kLeast = 64 << 10;
constexpr size_t kMostKept = 16 << 20;  // longer buffers are freed after use

std::mutex pool_mutex;
auto& pool = *new std::map<size_t, std::vector<char*>>;  // free buffers by their size

size_t size_class(size_t nbytes) {
  size_t size = kLeast;
  while (size < nbytes) size *= 2;
  return size;
}

void give_back(char* buffer, size_t size) {
  if (size > kMostKept) {
    release(buffer, false);
    return;
  }
  const std::lock_guard<std::mutex> lock(pool_mutex);
  pool[size].push_back(buffer);
}

}  // namespace

std::shared_ptr<char> staging_buffer(size_t nbytes) {
  const size_t size = size_class(nbytes);
  {
    const std::lock_guard<std::mutex> lock(pool_mutex);
    auto& free = pool[size];
    if (!free.empty()) {
      char* const found = free.back();
      free.pop_back();
      return {found, [size](char* one) { give_back(one, size); }};
    }
  }
  void* made = nullptr;
  if (allocate(&made, size, Kind::kPinned)) return nullptr;
  return {static_cast<char*>(made), [size](char* one) { give_back(one, size); }};
}

}  // namespace pretend
