// Runs the threads of a CUDA or HIP grid on the CPU: the interface for the program that launches.
#pragma once
#include <cstddef>

namespace pretend {

struct Grid {
  unsigned grid[3];
  unsigned block[3];
  size_t shared_bytes;  // dynamic shared memory of each block
};

// Runs one thread of a kernel; `arguments` holds the address of each argument, as cuLaunchKernel
// has it.
using KernelEntry = void (*)(void** arguments);

// Run a grid to its end; 0, EINVAL for a grid that no GPU takes, or E2BIG where its blocks have
// more threads than __launch_bounds__ of the kernel allows: it has not run then.
//
// At most PRETEND_RESIDENT (64) blocks run at a time, so that blocks may wait for one another as on
// a GPU. PRETEND_ORDER is the order of blocks and threads: numbered, reversed, or a number that
// seeds a shuffle. A fault that no GPU could survive (threads that meet at different barriers) ends
// the process with a message. May be called from several OS threads at once.
int run_grid(KernelEntry entry, const Grid& grid, void** arguments);

// Say where the calling OS thread is, for a handler of SIGSEGV: "thread (3, 0, 0) of block (0, 0,
// 0)", with a remark where `address` lies below the thread's stack. The length; 0 outside a kernel.
size_t describe_place(const void* address, char* text, size_t size);

// Handle SIGSEGV, SIGBUS and SIGFPE in this process: say the place and the address, where it is in
// a kernel, and leave the rest to the handler that was there before. To be called once.
void report_faults();

}  // namespace pretend
