// Keeps kernels of several processes on one physical device apart (PRETEND_EXCLUSIVE).
#pragma once

#include <cstdint>

namespace pretend {

// Held while a kernel runs. Those of this process may run together.
class Exclusive {
 public:
  // `device`: 1 + the physical device; 0: kernels need not be kept apart.
  explicit Exclusive(uint32_t device);
  ~Exclusive();
  Exclusive(const Exclusive&) = delete;
  Exclusive& operator=(const Exclusive&) = delete;

 private:
  const uint32_t device_;
};

}  // namespace pretend
