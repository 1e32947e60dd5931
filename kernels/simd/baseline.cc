// The kernels for what every processor of the architecture has: SSE2 on x86-64, NEON on AArch64,
// whatever the compiler makes of 16-byte vectors elsewhere.

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernel_table.h"

#define MPISTRAT_ISA baseline
#if defined(__aarch64__)
#define MPISTRAT_ISA_NAME "neon"
#else
#define MPISTRAT_ISA_NAME "baseline"
#endif
#define MPISTRAT_VECTOR_BYTES 16

#include "impl_kernel_table.h"
