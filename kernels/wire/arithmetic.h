#ifndef MPISTRAT_WIRE_ARITHMETIC_H_
#define MPISTRAT_WIRE_ARITHMETIC_H_

// The arithmetic of a reduction between nodes: in several steps, half types as float32, rounded in
// the last one.

#include <cstdint>

#include "mpistrat/calls.h"

namespace mpistrat::wire {

// How numbers are reduced step by step, and made a result in the end.
struct Arithmetic {
  int dtype = 0;   // of the steps
  int result = 0;  // MpistratDtype of the result; another one only for half types
  int op = 0;
  int64_t divisor = 1;

  static Arithmetic of(const MpistratSpec& spec);
  bool is_widened() const { return dtype != result; }
  int64_t itemsize() const;
  int64_t result_itemsize() const;
};

// A reduction of `count` elements, two sources at most.
void reduce_step(void* into, const void* first, const void* second, int64_t count,
                 const Arithmetic& how);
void finish_step(void* into, void* first, const void* second, int64_t count, const Arithmetic& how);

}  // namespace mpistrat::wire

#endif  // MPISTRAT_WIRE_ARITHMETIC_H_
