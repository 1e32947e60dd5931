// A module of kernels, loaded in a device's process.
#pragma once

#include <cstdint>

#include "runtime/device.h"

namespace pretend {

struct Module {
  Device* device;
  uint64_t number;  // in the device's process
  // Its global variables, once one was asked for: here, and where the kernels have them.
  char* variables;
  uint64_t variables_there, variables_bytes;
};

// Ask the device's process for something of a module that has a name.
hipError_t ask(Task task, const Module& module, const char* name, Answer* answer);

}  // namespace pretend
