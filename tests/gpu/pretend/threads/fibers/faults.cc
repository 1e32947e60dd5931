#include "threads/fibers/faults.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "threads/block.h"
#include "threads/launch.h"

namespace pretend {
namespace {

constexpr size_t kHandlerBytes = 64 * 1024;

class HandlerStack {
 public:
  HandlerStack() {
    stack_t now{};
    sigaltstack(nullptr, &now);
    if (!(now.ss_flags & SS_DISABLE)) return;  // the program or a sanitizer gave it one
    bytes_ = std::make_unique<char[]>(kHandlerBytes);
    stack_t ours{};
    ours.ss_sp = bytes_.get();
    ours.ss_size = kHandlerBytes;
    sigaltstack(&ours, nullptr);
  }
  ~HandlerStack() {
    if (!bytes_) return;
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    sigaltstack(&none, nullptr);
  }

 private:
  std::unique_ptr<char[]> bytes_;
};

struct sigaction before[NSIG];  // what the program had, as Python's faulthandler

// In a kernel say where; then the instruction faults again under the handler that was there before.
void handle(int number, siginfo_t* info, void*) {
  char place[256], text[400];
  if (describe_place(info->si_addr, place, sizeof(place))) {
    const int n =
        std::snprintf(text, sizeof(text), "pretended GPU: %s at address %p by %s\n",
                      number == SIGFPE ? "SIGFPE" : "illegal access", info->si_addr, place);
    if (n > 0 && write(STDERR_FILENO, text, static_cast<size_t>(n)) < 0) _exit(128 + number);
  }
  sigaction(number, &before[number], nullptr);
}

}  // namespace

void prepare_for_faults() { static thread_local HandlerStack stack; }

size_t describe_place(const void* address, char* text, size_t size) {
  const Thread* thread = block ? block->running_or_none() : nullptr;
  if (!thread) return 0;
  const Here& at = thread->here;
  const bool overflow = thread->fiber->overflowed(address);
  const int n =
      std::snprintf(text, size, "thread (%u, %u, %u) of block (%u, %u, %u)%s", at.thread.x,
                    at.thread.y, at.thread.z, at.block.x, at.block.y, at.block.z,
                    overflow ? ": its stack overflowed (PRETEND_STACK_KIB)" : "");
  return n > 0 ? static_cast<size_t>(n) : 0;
}

void report_faults() {
  struct sigaction action{};
  action.sa_sigaction = &handle;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (int number : {SIGSEGV, SIGBUS, SIGFPE}) sigaction(number, &action, &before[number]);
}

}  // namespace pretend
