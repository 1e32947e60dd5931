// Reductions of the ten dtypes.
#pragma once

#include <cstddef>

#include "nccl/interface/nccl.h"

namespace pretend {

size_t size_of(ncclDataType_t dtype);
const char* name_of(ncclDataType_t dtype);
const char* name_of(ncclRedOp_t op);

// out[i] = inputs[0][i] op inputs[1][i] op ... for n elements; `out` is none of the inputs.
//
// Always in the order of the ranks, so all ranks get the same bits. NCCL's own order differs from
// chunk to chunk, and NCCL rounds halves after each step; here float16 and bfloat16 are reduced in
// float32 and rounded once. Integers wrap around. As in NCCL, max and min ignore NaN beside a
// number, the average of floating-point numbers multiplies each input by 1 / ranks (rounded to the
// dtype) before it adds, and the average of integers divides the sum, towards zero.
void reduce(ncclDataType_t dtype, ncclRedOp_t op, const char* const* inputs, int ranks, size_t n,
            char* out);

}  // namespace pretend
