#include "arithmetic.h"

#include "mpistrat/simd.h"

namespace mpistrat::wire {

Arithmetic Arithmetic::of(const MpistratSpec& spec) {
  const bool is_half = spec.dtype == MPISTRAT_FLOAT16 || spec.dtype == MPISTRAT_BFLOAT16;
  return {is_half ? MPISTRAT_FLOAT32 : spec.dtype, spec.dtype, spec.op, spec.divisor};
}

int64_t Arithmetic::itemsize() const { return static_cast<int64_t>(mpistrat_itemsize(dtype)); }

int64_t Arithmetic::result_itemsize() const {
  return static_cast<int64_t>(mpistrat_itemsize(result));
}

namespace {

void apply(void* into, const void* first, const void* second, int64_t count, const Arithmetic& how,
           int64_t divisor) {
  const void* sources[] = {first, second};
  mpistrat_reduce(&into, 1, sources, second ? 2 : 1, static_cast<size_t>(count), how.dtype, how.op,
                  divisor, 0);
}

}  // namespace

void reduce_step(void* into, const void* first, const void* second, int64_t count,
                 const Arithmetic& how) {
  apply(into, first, second, count, how, 1);
}

void finish_step(void* into, void* first, const void* second, int64_t count,
                 const Arithmetic& how) {
  apply(how.is_widened() ? first : into, first, second, count, how, how.divisor);
  if (how.is_widened()) mpistrat_narrow(into, first, static_cast<size_t>(count), how.result);
}

}  // namespace mpistrat::wire
