#pragma once
// Built in: language/prelude.h. CuPy finds the folder of CUDA's headers by this one.
