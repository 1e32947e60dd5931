// Shared memory is not cleared between blocks; here it is full of rubbish when a block starts.
#pragma once
#include <cstddef>

#include "threads/launch.h"

namespace pretend {

void fill_with_rubbish(void* at, size_t bytes);

// A kernel's __shared__ variables are thread-local variables of its image, and the only ones there.
class StaticShared {
 public:
  explicit StaticShared(KernelEntry entry);
  void fill() const;  // those of the calling OS thread, with rubbish

 private:
  size_t module_ = 0;  // the dynamic linker's number of the image; 0: no __shared__ variables
  size_t bytes_ = 0;
};

}  // namespace pretend
