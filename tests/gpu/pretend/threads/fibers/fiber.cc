// Fibers. On x86-64 a switch is a few instructions; elsewhere ucontext, which costs two system
// calls.
#include "threads/fibers/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>

#include "threads/complaints.h"
#include "threads/fibers/sanitizers.h"
#include "threads/settings.h"

#ifdef PRETEND_OWN_SWITCH
// void pretend_switch_stacks(void** save, void* load): the registers that a call must keep.
asm(R"(
.text
.type pretend_switch_stacks, @function
pretend_switch_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  subq $8, %rsp
  stmxcsr (%rsp)
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  ldmxcsr (%rsp)
  addq $8, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size pretend_switch_stacks, .-pretend_switch_stacks
)");
extern "C" void pretend_switch_stacks(void** save, void* load);
#endif

namespace pretend {
namespace {

thread_local Fiber* entered;  // by this OS thread

constexpr size_t kGuardBytes = 4096;
constexpr uintptr_t kRounding = 0x1f80;  // of a new thread: to nearest, subnormal numbers kept
// A guard page splits a mapping, of which Linux allows a process 65530; beyond this many stacks do
// without, since 64 blocks of 1024 threads must run all the same.
constexpr unsigned kGuarded = 24000;
std::atomic<unsigned> stacks{0};

char* new_stack() {
  void* at = mmap(nullptr, stack_bytes() + kGuardBytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED)
    complain("no memory for the stack of a thread (%zu KiB)", stack_bytes() / 1024);
  // A call that finds no mapping left leaves the page as it is.
  if (stacks++ < kGuarded) static_cast<void>(mprotect(at, kGuardBytes, PROT_NONE));
  return static_cast<char*>(at) + kGuardBytes;
}

}  // namespace

Fiber::Fiber(Body body) : body_(body), stack_(new_stack()), thread_(new_thread_identity()) {
#ifdef PRETEND_OWN_SWITCH
  void** top = reinterpret_cast<void**>(stack_ + stack_bytes());
  *--top = nullptr;  // where start() would return to; keeps the stack aligned as after a call
  *--top = reinterpret_cast<void*>(&Fiber::start);
  for (int saved = 0; saved < 6; ++saved) *--top = nullptr;
  *--top = reinterpret_cast<void*>(kRounding);
  own_ = top;
#else
  getcontext(&own_);
  own_.uc_stack.ss_sp = stack_;
  own_.uc_stack.ss_size = stack_bytes();
  own_.uc_link = nullptr;
  makecontext(&own_, &Fiber::start, 0);
#endif
}

Fiber::~Fiber() {
  end_thread_identity(thread_);
  munmap(stack_ - kGuardBytes, stack_bytes() + kGuardBytes);
  --stacks;
}

unsigned Fiber::count() { return stacks; }

void Fiber::start() {
  Fiber* self = entered;
  after_switch(nullptr, &self->host_stack_, &self->host_bytes_);
  for (;;) self->body_();
}

void Fiber::enter() {
  entered = this;
  host_thread_ = own_thread_identity();
  before_switch(&host_saved_, stack_, stack_bytes());
  become_thread(thread_);
#ifdef PRETEND_OWN_SWITCH
  pretend_switch_stacks(&host_, own_);
#else
  swapcontext(&host_, &own_);
#endif
  after_switch(host_saved_, nullptr, nullptr);
}

void Fiber::leave() {
  before_switch(&saved_, host_stack_, host_bytes_);
  become_thread(host_thread_);
#ifdef PRETEND_OWN_SWITCH
  pretend_switch_stacks(&own_, host_);
#else
  swapcontext(&own_, &host_);
#endif
  after_switch(saved_, &host_stack_, &host_bytes_);
}

bool Fiber::overflowed(const void* address) const {
  const auto at = reinterpret_cast<uintptr_t>(address);
  const auto bottom = reinterpret_cast<uintptr_t>(stack_);
  return at >= bottom - kGuardBytes && at < bottom;
}

}  // namespace pretend
