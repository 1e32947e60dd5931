// The variables that change how threads run.
#pragma once
#include <cstddef>

namespace pretend {

struct Order {
  enum class Kind { kNumbered, kReversed, kShuffled } kind;
  unsigned seed;
};

Order order();               // PRETEND_ORDER: numbered | reversed | a seed
unsigned resident_blocks();  // PRETEND_RESIDENT (64): blocks that run at a time
size_t stack_bytes();        // PRETEND_STACK_KIB (128; 512 under AddressSanitizer): of a thread

}  // namespace pretend
