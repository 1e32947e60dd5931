// The function by which threads/ calls a kernel: arguments by address, as cuLaunchKernel has them.
#pragma once
#include <cstddef>
#include <type_traits>
#include <utility>

namespace pretend {

template <auto kernel>
struct Entry;
template <typename... P, void (*kernel)(P...)>
struct Entry<kernel> {
  static void call(void** arguments) { call(arguments, std::index_sequence_for<P...>{}); }
  static constexpr size_t sizes[] = {sizeof(P)..., 0};

 private:
  template <size_t... I>
  static void call([[maybe_unused]] void** arguments, std::index_sequence<I...>) {
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
