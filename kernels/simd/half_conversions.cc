// mpistrat_widen and mpistrat_narrow: the conversions of the instruction set in use.

#include "kernel_table.h"
#include "mpistrat/simd.h"

extern "C" void mpistrat_widen(void* to, const void* from, size_t count, int dtype) {
  auto* wide = static_cast<uint32_t*>(to);
  const auto* halves = static_cast<const uint16_t*>(from);
  const mpistrat::KernelTable& kernels = mpistrat::kernel_table();
  if (dtype == MPISTRAT_FLOAT16) kernels.widen_float16(wide, halves, count);
  if (dtype == MPISTRAT_BFLOAT16) kernels.widen_bfloat16(wide, halves, count);
}

extern "C" void mpistrat_narrow(void* to, const void* from, size_t count, int dtype) {
  auto* halves = static_cast<uint16_t*>(to);
  const auto* wide = static_cast<const uint32_t*>(from);
  const mpistrat::KernelTable& kernels = mpistrat::kernel_table();
  if (dtype == MPISTRAT_FLOAT16) kernels.narrow_float16(halves, wide, count);
  if (dtype == MPISTRAT_BFLOAT16) kernels.narrow_bfloat16(halves, wide, count);
}
