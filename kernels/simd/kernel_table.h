#ifndef MPISTRAT_SIMD_KERNEL_TABLE_H_
#define MPISTRAT_SIMD_KERNEL_TABLE_H_

// The kernels of an instruction set, by operation and dtype, and the set that is in use.

#include <cstddef>
#include <cstdint>

#include "mpistrat/optimizer_updates.h"

namespace mpistrat {

constexpr int kNumDtypes = 15;
constexpr int kNumOps = 7;

// What is reduced: `num` arrays of `nbytes` bytes.
struct Sources {
  const char* const* data;
  int num;
  size_t nbytes;
};

// Where a result is written: to one place through the caches, or, by kernels of sums, to one or two
// through them or past them. There both are multiples of kPastAlignment, what does not fill a
// vector at either end goes through the caches all the same, and the caller sees to it that the
// stores are ordered before its next ones.
struct Results {
  char* first;
  char* second = nullptr;
  bool is_past = false;
};
constexpr size_t kPastAlignment = 16;

// Reduce bytes [begin, begin + nbytes) of all sources into `to`, which stands for byte `begin` of
// the destinations. `begin` and `nbytes` are multiples of the item size.
using ReduceKernel = void (*)(const Results& to, const Sources& sources, size_t begin,
                              size_t nbytes, int64_t divisor);

// A variable, its gradient, and what an optimizer keeps of it: all of one type, in which the rule
// computes; the same arrays as in MpistratUpdateArrays.
struct UpdateArrays {
  char* variable;
  const char *old_variable, *gradient;
  char* slots[MPISTRAT_MAX_SLOTS];
  const char* old_slots[MPISTRAT_MAX_SLOTS];
};

// Update `count` elements by a rule with these numbers.
using UpdateKernel = void (*)(const UpdateArrays& arrays, size_t count, const double* numbers);

// Convert `count` elements of a half type to the bits of float32, or back.
using WidenKernel = void (*)(uint32_t* to, const uint16_t* from, size_t count);
using NarrowKernel = void (*)(uint16_t* to, const uint32_t* from, size_t count);

// One reduction of one dtype, null where the op has no meaning; the update rules, of float32 and of
// float64; and conversions.
struct KernelTable {
  const char* name;
  ReduceKernel kernels[kNumOps][kNumDtypes];
  UpdateKernel updates[MPISTRAT_NUM_RULES][2];
  WidenKernel widen_float16, widen_bfloat16;
  NarrowKernel narrow_float16, narrow_bfloat16;
};

namespace baseline {
extern const KernelTable kTable;
}
#if defined(__x86_64__)
namespace avx2 {
extern const KernelTable kTable;
}
namespace avx512 {
extern const KernelTable kTable;
}
#endif

// The table in use.
const KernelTable& kernel_table();

}  // namespace mpistrat

#endif  // MPISTRAT_SIMD_KERNEL_TABLE_H_
