// A fiber: a stack of its own on which a function runs until it gives way to its host.
#pragma once
#include <cstddef>

#if defined(__x86_64__) && !defined(PRETEND_UCONTEXT)
#define PRETEND_OWN_SWITCH
#else
#include <ucontext.h>
#endif

namespace pretend {

class Fiber {
 public:
  // The body is run again each time that it returns; it gives way by leave().
  using Body = void (*)();
  explicit Fiber(Body body);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void enter();  // from the host: go on until the fiber leaves
  void leave();  // from the fiber: back to enter()

  static unsigned count();  // of all fibers of the process

  bool overflowed(const void* address) const;  // lies in the guard page below the stack

 private:
  static void start();

#ifdef PRETEND_OWN_SWITCH
  void* own_ = nullptr;  // stack pointers
  void* host_ = nullptr;
#else
  ucontext_t own_, host_;
#endif
  Body body_;
  char* stack_;
  void* thread_ = nullptr;  // ThreadSanitizer's
  void* host_thread_ = nullptr;
  void* saved_ = nullptr;  // AddressSanitizer's
  void* host_saved_ = nullptr;
  const void* host_stack_ = nullptr;
  size_t host_bytes_ = 0;
};

}  // namespace pretend
