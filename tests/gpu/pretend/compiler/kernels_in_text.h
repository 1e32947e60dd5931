// Finds the kernels in a preprocessed source, and puts words of C++ in place of marks.
#pragma once
#include <string>
#include <vector>

namespace pretend {

struct Kernels {
  std::vector<std::string> names;  // of those with C linkage, by which a launch may ask for them
  std::string text;                // with no marks left
};

// language/threads.h, preprocessed with PRETEND_MARKS, leaves PRETEND_KERNEL for __global__ and
// PRETEND_SHARED for __shared__: a macro cannot see that the latter comes after `extern`.
Kernels find_kernels(const std::string& preprocessed);

// The functions that an image exports for a kernel: `kernel` is an expression, `name` how a launch
// asks for it.
std::string entry_of(const std::string& name, const std::string& kernel);

}  // namespace pretend
