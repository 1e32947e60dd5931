// Functions of CUDA that are HIP's under another name: the same arguments, the same numbers.
#pragma once

#if defined(__x86_64__)
#define PRETEND_JUMP "jmp "
#define PRETEND_WHERE "@PLT"
#elif defined(__aarch64__)
#define PRETEND_JUMP "b "
#define PRETEND_WHERE ""
#else
#error "no jump is known for this processor"
#endif

// Export `name`, which goes on at `to` with the registers and the stack as they are.
#define FORWARD(name, to)                                                       \
  asm(".text\n.p2align 4\n.globl " #name "\n.type " #name ", %function\n" #name \
      ":\n\t" PRETEND_JUMP #to PRETEND_WHERE "\n.size " #name ", . - " #name "\n");
