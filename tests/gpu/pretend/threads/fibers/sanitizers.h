// Tells the sanitizers of a switch of stacks, and of what orders the threads of a grid.
//
// To ThreadSanitizer each CUDA thread is a thread of its own, ordered only by barriers and atomics:
// it reports a missing __syncthreads as a data race, although all threads of a block take turns on
// one OS thread. These files are themselves compiled without -fsanitize=thread, so that the
// scheduler's own data count as nobody's.
#pragma once
#include <cstddef>

#ifdef PRETEND_TSAN
#include <sanitizer/tsan_interface.h>
#endif
#ifdef PRETEND_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

namespace pretend {

#ifdef PRETEND_TSAN
constexpr bool kRaces = true;
inline void release(void* tag) { __tsan_release(tag); }
inline void acquire(void* tag) { __tsan_acquire(tag); }
inline void* new_thread_identity() { return __tsan_create_fiber(0); }
inline void* own_thread_identity() { return __tsan_get_current_fiber(); }
inline void end_thread_identity(void* thread) { __tsan_destroy_fiber(thread); }
inline void become_thread(void* thread) {
  __tsan_switch_to_fiber(thread, __tsan_switch_to_fiber_no_sync);
}
#else
constexpr bool kRaces = false;
inline void release(void*) {}
inline void acquire(void*) {}
inline void* new_thread_identity() { return nullptr; }
inline void* own_thread_identity() { return nullptr; }
inline void end_thread_identity(void*) {}
inline void become_thread(void*) {}
#endif

#ifdef PRETEND_ASAN
inline void before_switch(void** saved, const void* stack, size_t bytes) {
  __sanitizer_start_switch_fiber(saved, stack, bytes);
}
inline void after_switch(void* saved, const void** stack, size_t* bytes) {
  __sanitizer_finish_switch_fiber(saved, stack, bytes);
}
#else
inline void before_switch(void**, const void*, size_t) {}
inline void after_switch(void*, const void**, size_t*) {}
#endif

}  // namespace pretend
