// The kernels for AVX-512, as servers have had it since 2017. dispatch.cc sees to it that only such
// processors run them.

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernel_table.h"

// For all that follows, in place of a compiler flag for this file alone.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c"))), \
                             apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,f16c")
#endif

#define MPISTRAT_ISA avx512
#define MPISTRAT_ISA_NAME "avx512"
#define MPISTRAT_VECTOR_BYTES 64

#include "impl_kernel_table.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif

#endif  // __x86_64__
