// The variables of the environment that the runtime reads (README.md), once.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace pretend {

struct Settings {
  // Physical devices that this process can see, by its own numbers.
  std::vector<int> devices;
  size_t memory_bytes;  // of each device
  int late_ms[2];       // the least and the most time before each piece of work
  bool has_peers;       // devices can access one another's memory
  bool is_exclusive;    // kernels of processes on one device never overlap
  bool is_separate;     // the devices of each process are other ones
  int lost_device;      // -1: none
  long lost_after;      // pieces of work
  bool traces;
  bool aborts_on_missing;  // a function that does not exist here ends the process
};

const Settings& settings();

// The PCI bus id of a device, which shows its physical identity.
std::string bus_id(int device);

// Print a line if PRETEND_TRACE=1.
void trace(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace pretend
