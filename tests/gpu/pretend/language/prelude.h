// The language of HIP kernels for g++: what hipRTC has built in. Comes before every kernel source.
//
// A thread is a fiber of threads/; the rest is plain C++. What a host compiler cannot know is
// accepted and ignored (__launch_bounds__), or refused by g++ (inline assembly of a GPU).
#pragma once
// Without libstdc++'s special functions (std::riemann_zeta, ...), which are most of the text that
// g++ would parse for a kernel, and half of its time. No kernel calls them.
#include <bits/c++config.h>
#undef _GLIBCXX_USE_STD_SPEC_FUNCS
#define _GLIBCXX_USE_STD_SPEC_FUNCS 0
#include <math.h>  // not <cmath>: the names are global in this language

#include <cassert>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <limits>
#include <type_traits>

#include "threads/interface.h"

#ifdef PRETEND_CUDA
// __CUDACC__ and __CUDACC_RTC__ are not defined: they promise inline PTX.
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#else
#define __HIP__ 1
#define __HIPCC__ 1
#define __HIPCC_RTC__ 1
#define __HIP_PLATFORM_AMD__ 1
#define HIP_VERSION_MAJOR 7
#define HIP_VERSION_MINOR 0
#define HIP_VERSION_PATCH 51831
#define HIP_VERSION 70051831
#endif
// For kernels that must know: no GPU runs this.
#define PRETENDED_GPU 1
// __HIP_DEVICE_COMPILE__ is not defined: it tells CuPy that lanes march in step, which fibers do
// not.

#include "language/atomics.h"
#include "language/bits.h"
#include "language/entries.h"
#include "language/half.h"
#include "language/lanes.h"
#include "language/mathematics.h"
#include "language/threads.h"
#include "language/vectors.h"
