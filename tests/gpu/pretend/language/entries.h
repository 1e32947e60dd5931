// The function by which threads/ calls a kernel: arguments by address, as cuLaunchKernel has them.
#pragma once
#include <cstddef>
#include <type_traits>
#include <utility>

#if defined(PRETEND_FLUSHES_SUBNORMALS) && defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace pretend {

// Around a kernel that was compiled to take subnormal numbers for 0. A switch to another fiber
// keeps the register that says so.
struct Arithmetic {
#if defined(PRETEND_FLUSHES_SUBNORMALS) && defined(__SSE__)
  static constexpr unsigned kFlush = 0x8040;  // what is read, and what results
  Arithmetic() { _mm_setcsr(_mm_getcsr() | kFlush); }
  ~Arithmetic() { _mm_setcsr(_mm_getcsr() & ~kFlush); }
#endif
};

template <auto kernel>
struct Entry;
template <typename... P, void (*kernel)(P...)>
struct Entry<kernel> {
  static void call(void** arguments) { call(arguments, std::index_sequence_for<P...>{}); }
  static constexpr size_t sizes[] = {sizeof(P)..., 0};

 private:
  template <size_t... I>
  static void call([[maybe_unused]] void** arguments, std::index_sequence<I...>) {
    [[maybe_unused]] const Arithmetic arithmetic;
    kernel(*static_cast<std::remove_cv_t<std::remove_reference_t<P>>*>(arguments[I])...);
  }
};

}  // namespace pretend

// Exports kernel `...` (a name, or an instantiation of a template) under `name`.
#define PRETEND_ENTRY(name, ...)                                            \
  extern "C" PRETEND_EXPORT void pretend_entry_##name(void** arguments) {   \
    pretend::Entry<&__VA_ARGS__>::call(arguments);                          \
  }                                                                         \
  extern "C" PRETEND_EXPORT const size_t* pretend_argument_sizes_##name() { \
    return pretend::Entry<&__VA_ARGS__>::sizes;                             \
  }
