// Atomics: CUDA's, which order nothing else, and HIP's with an order and a scope.
//
// Each gives way to the other threads afterwards, since a kernel may be waiting for one of them by
// it. The scope is not looked at: the CPU's memory is one for all.
#pragma once
#include <type_traits>

#include "threads/interface.h"

#define __HIP_MEMORY_SCOPE_SINGLETHREAD 1
#define __HIP_MEMORY_SCOPE_WAVEFRONT 2
#define __HIP_MEMORY_SCOPE_WORKGROUP 3
#define __HIP_MEMORY_SCOPE_AGENT 4
#define __HIP_MEMORY_SCOPE_SYSTEM 5

namespace pretend {

// Replace the value at `at` by change(value) in one step; the value before.
template <typename T, typename Change>
T replace(T* at, Change change, int order = __ATOMIC_RELAXED) {
  T seen, next;
  __atomic_load(at, &seen, __ATOMIC_RELAXED);
  do next = change(seen);
  while (!__atomic_compare_exchange(at, &seen, &next, false, order, __ATOMIC_RELAXED));
  pause();
  return seen;
}

template <typename T>
std::remove_cv_t<T> load(T* at, int order) {
  std::remove_cv_t<T> value;
  __atomic_load(at, &value, order);
  pause();
  return value;
}

template <typename T>
concept Number = std::is_arithmetic_v<T>;
// The type of the second argument: converted to that of the first, as a plain function has it.
template <typename T>
using As = std::type_identity_t<T>;

}  // namespace pretend

#define PRETEND_ATOMIC(name, result)                                   \
  template <pretend::Number T>                                         \
  T name(T* at, pretend::As<T> by) {                                   \
    return pretend::replace(at, [by](T seen) -> T { return result; }); \
  }                                                                    \
  template <pretend::Number T>                                         \
  T name##_system(T* at, pretend::As<T> by) {                          \
    return name(at, by);                                               \
  }
PRETEND_ATOMIC(atomicAdd, seen + by)
PRETEND_ATOMIC(atomicSub, seen - by)
PRETEND_ATOMIC(atomicMin, by < seen ? by : seen)
PRETEND_ATOMIC(atomicMax, seen < by ? by : seen)
PRETEND_ATOMIC(atomicAnd, seen& by)
PRETEND_ATOMIC(atomicOr, seen | by)
PRETEND_ATOMIC(atomicXor, seen ^ by)
PRETEND_ATOMIC(atomicExch, (static_cast<void>(seen), by))
PRETEND_ATOMIC(atomicInc, seen >= by ? 0 : seen + 1)
PRETEND_ATOMIC(atomicDec, seen == 0 || seen > by ? by : seen - 1)
#undef PRETEND_ATOMIC

template <pretend::Number T>
T atomicCAS(T* at, pretend::As<T> expected, pretend::As<T> value) {
  static_assert(std::is_integral_v<T>);
  __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  pretend::pause();
  return expected;
}
template <pretend::Number T>
T atomicCAS_system(T* at, pretend::As<T> expected, pretend::As<T> value) {
  return atomicCAS(at, expected, value);
}

template <typename T>
std::remove_cv_t<T> __hip_atomic_load(T* at, int order, int) {
  return pretend::load(at, order);
}
template <typename T>
void __hip_atomic_store(T* at, pretend::As<T> value, int order, int) {
  __atomic_store(at, &value, order);
}
template <typename T>
T __hip_atomic_exchange(T* at, pretend::As<T> value, int order, int) {
  return pretend::replace(at, [value](T) { return value; }, order);
}
template <typename T>
bool __hip_atomic_compare_exchange_strong(T* at, T* expected, pretend::As<T> value, int success,
                                          int failure, int) {
  const bool done = __atomic_compare_exchange(at, expected, &value, false, success, failure);
  pretend::pause();
  return done;
}
template <typename T>
bool __hip_atomic_compare_exchange_weak(T* at, T* expected, pretend::As<T> value, int success,
                                        int failure, int scope) {
  return __hip_atomic_compare_exchange_strong(at, expected, value, success, failure, scope);
}
#define PRETEND_ATOMIC(name, result)                                          \
  template <typename T>                                                       \
  T __hip_atomic_fetch_##name(T* at, pretend::As<T> by, int order, int) {     \
    return pretend::replace(at, [by](T seen) -> T { return result; }, order); \
  }
PRETEND_ATOMIC(add, seen + by)
PRETEND_ATOMIC(and, seen& by)
PRETEND_ATOMIC(or, seen | by)
PRETEND_ATOMIC(xor, seen ^ by)
PRETEND_ATOMIC(min, by < seen ? by : seen)
PRETEND_ATOMIC(max, seen < by ? by : seen)
#undef PRETEND_ATOMIC

// The compiler's own, for a kernel that polls by it.
#define __atomic_load_n(at, order) pretend::load(at, order)
