#include "nccl/interface/errors.h"

#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace pretend {
namespace {

// Never destroyed: detached threads may still complain while the process ends.
std::mutex& mutex() {
  static auto* const m = new std::mutex;
  return *m;
}
std::string& message_of_process() {
  static auto* const s = new std::string;
  return *s;
}

}  // namespace

std::string text(const char* format, ...) {
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  return line;
}

ncclResult_t complain(ncclResult_t result, const std::string& message) {
  const std::lock_guard lock(mutex());
  message_of_process() = message;
  std::fprintf(stderr, "[pretended nccl, process %d] %s\n", getpid(), message.c_str());
  return result;
}

const char* last_message() {
  static thread_local std::string copy;
  const std::lock_guard lock(mutex());
  copy = message_of_process();
  return copy.c_str();
}

bool hangs_as_hardware() {
  const char* value = std::getenv("PRETEND_NCCL_HANG");
  return value && std::atoi(value) != 0;
}

}  // namespace pretend
