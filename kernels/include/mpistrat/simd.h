#ifndef MPISTRAT_SIMD_H_
#define MPISTRAT_SIMD_H_

// Reductions and copies of memory, as fast as one core goes. Functions of their arguments alone:
// no state but the choice of instruction set, no allocation, safe to call from many threads.
//
// Every instruction set gives the same bits (of a NaN only that it is one). For that the library
// must be compiled with -ffp-contract=off: a fused multiply-add rounds once where others do twice.

#include <stddef.h>
#include <stdint.h>

#include "mpistrat/types.h"

#ifdef __cplusplus
extern "C" {
#endif

// Bytes of one element; 0 if `dtype` is no MpistratDtype.
size_t mpistrat_itemsize(int dtype);

// 1 if `op` has a meaning for `dtype`, else 0. Sum and prod: every dtype. Min and max: all but
// complex. And, or, xor: integers and bool.
int mpistrat_can_reduce(int op, int dtype);

// Which destinations are written past the caches, as pays for what this core will not read soon:
// none, all, or all but the first. The stores are ordered before whatever the caller stores next.
typedef enum { MPISTRAT_STREAM_NONE, MPISTRAT_STREAM_ALL, MPISTRAT_STREAM_REST } MpistratStream;

// Write ((sources[0] op sources[1]) op sources[2]) ... to every destination, element by element.
//
// Integers wrap. On bool, sum and max are the logical or, prod and min the logical and. A min or
// max of floats is NaN if one of its sources is, and never -0.0. Float16 and bfloat16 accumulate
// over all sources as float32, and round once to nearest even. Nothing is done if `op` has no
// meaning for `dtype`.
//
// destinations  At least one. Each may be the same address as one source; no other overlap.
// sources       At least one. No alignment is needed, though 64 bytes is the fastest.
// divisor       Above 1, floating and complex results are divided by it before they are rounded
//               (complex ones by component). Integers and bool ignore it.
// stream        MpistratStream.
void mpistrat_reduce(void* const* destinations, int num_destinations, const void* const* sources,
                     int num_sources, size_t count, int dtype, int op, int64_t divisor, int stream);

// Copy `nbytes` between two ranges that do not overlap, past the caches if `stream` is not 0.
void mpistrat_copy(void* destination, const void* source, size_t nbytes, int stream);

// Convert `count` float16 or bfloat16 to float32, or back, rounding to nearest even; a NaN stays
// one. Nothing is done for other dtypes. Both ranges are aligned as their elements are, and do not
// overlap.
void mpistrat_widen(void* to, const void* from, size_t count, int dtype);
void mpistrat_narrow(void* to, const void* from, size_t count, int dtype);

// The instruction set in use: "avx512", "avx2" or "baseline" (x86-64), "neon" (AArch64),
// "baseline" (elsewhere). The best that this processor has, until another is selected.
const char* mpistrat_simd_name(void);

// Use the named instruction set from now on, for tests and measurements. Returns 1; or 0, with
// nothing changed, if the processor lacks it or the name is unknown.
int mpistrat_simd_select(const char* name);

#ifdef __cplusplus
}
#endif

#endif  // MPISTRAT_SIMD_H_
