// bfloat16 with the names of NVIDIA's header.
#pragma once
#include "language/hip/hip_bf16.h"

using __nv_bfloat16 = __hip_bfloat16;
