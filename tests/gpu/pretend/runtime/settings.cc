#include "runtime/settings.h"

#include <stdarg.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

namespace pretend {
namespace {

[[noreturn]] void refuse(const char* name, const char* expected) {
  std::fprintf(stderr, "[pretend GPU] %s=%s: expected %s\n", name, std::getenv(name), expected);
  std::abort();
}

long number(const char* name, long otherwise) {
  const char* text = std::getenv(name);
  if (!text || !*text) return otherwise;
  char* end;
  const long value = std::strtol(text, &end, 10);
  if (*end || value < 0) refuse(name, "a whole number");
  return value;
}

// One number, or LEAST-MOST.
void read_late(int* late_ms) {
  const char* text = std::getenv("PRETEND_LATE_MS");
  if (!text || !*text) return;
  int length = 0;
  const int count = std::sscanf(text, "%d%n-%d%n", &late_ms[0], &length, &late_ms[1], &length);
  if (count == 1) late_ms[1] = late_ms[0];
  const bool is_range = late_ms[0] >= 0 && late_ms[0] <= late_ms[1];
  if (count < 1 || text[length] || !is_range)
    refuse("PRETEND_LATE_MS", "milliseconds, or LEAST-MOST");
}

#ifdef PRETEND_CUDA
constexpr char kVisible[] = "CUDA_VISIBLE_DEVICES";
#else
constexpr char kVisible[] = "HIP_VISIBLE_DEVICES";
#endif

// HIP's rule, and CUDA's: numbers up to the first that names no device.
std::vector<int> visible_devices() {
  const int all = static_cast<int>(number("PRETEND_GPUS", 1));
  std::vector<int> found;
  const char* text = std::getenv(kVisible);
  if (!text) {
    for (int i = 0; i < all; ++i) found.push_back(i);
    return found;
  }
  std::stringstream list(text);
  for (std::string one; std::getline(list, one, ',');) {
    char* end;
    const long device = std::strtol(one.c_str(), &end, 10);
    if (one.empty() || *end || device < 0 || device >= all) break;
    found.push_back(static_cast<int>(device));
  }
  return found;
}

Settings read_settings() {
  Settings found = {};
  found.devices = visible_devices();
  found.memory_bytes = static_cast<size_t>(number("PRETEND_MIB", 4096)) << 20;
  read_late(found.late_ms);
  found.has_peers = !number("PRETEND_NO_PEERS", 0);
  const char* exclusive = std::getenv("PRETEND_EXCLUSIVE");  // 1, or a file
  found.is_exclusive = exclusive && *exclusive && std::strcmp(exclusive, "0");
  found.is_separate = number("PRETEND_SEPARATE", 0);
  found.traces = number("PRETEND_TRACE", 0);
  const char* missing = std::getenv("PRETEND_MISSING");
  found.aborts_on_missing = !(missing && !std::strcmp(missing, "error"));
  found.lost_device = -1;
  if (const char* lost = std::getenv("PRETEND_LOST"))
    if (std::sscanf(lost, "%d:%ld", &found.lost_device, &found.lost_after) != 2)
      refuse("PRETEND_LOST", "DEVICE:AFTER");
  return found;
}

}  // namespace

const Settings& settings() {
  // Never destroyed: the threads of streams may use it while the process ends.
  static const Settings& found = *new Settings(read_settings());
  return found;
}

std::string bus_id(int device) {
  const int physical = settings().devices[static_cast<size_t>(device)];
  const int domain = settings().is_separate ? getpid() & 0xffff : 0;
  char text[32];
  std::snprintf(text, sizeof text, "%04x:%02x:00.0", domain, physical + 1);
  return text;
}

void trace(const char* format, ...) {
  if (!settings().traces) return;
  va_list arguments;
  va_start(arguments, format);
  std::fprintf(stderr, "[pretend GPU %d] ", getpid());
  std::vfprintf(stderr, format, arguments);
  std::fputc('\n', stderr);
  va_end(arguments);
}

}  // namespace pretend
