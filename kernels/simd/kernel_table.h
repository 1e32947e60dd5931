#ifndef MPISTRAT_SIMD_KERNEL_TABLE_H_
#define MPISTRAT_SIMD_KERNEL_TABLE_H_

// The kernels of an instruction set, by operation and dtype, and the set that is in use.

#include <cstddef>
#include <cstdint>

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

// One reduction of one dtype; null where the op has no meaning.
struct KernelTable {
  const char* name;
  ReduceKernel kernels[kNumOps][kNumDtypes];
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
