// Functions of hipBLAS that CuPy's modules name and that do not exist here: each says so, by its
// name.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "blas/hipblas.h"

namespace {

// PRETEND_MISSING=error: return an error instead.
hipblasStatus_t missing(const char* function) {
  std::fprintf(stderr,
               "[pretend GPU] %s does not exist here; see \"not implemented\" in"
               " tests/gpu/pretend/README.md\n",
               function);
  const char* const wanted = std::getenv("PRETEND_MISSING");
  if (!wanted || std::strcmp(wanted, "error")) std::abort();
  return HIPBLAS_STATUS_NOT_SUPPORTED;
}

}  // namespace

#define MISSING(name) \
  HIPBLAS_API hipblasStatus_t name() { return missing(#name); }

MISSING(hipblasCaxpy)
MISSING(hipblasCdgmm)
MISSING(hipblasCgetrfBatched)
MISSING(hipblasCgetriBatched)
MISSING(hipblasCgetrsBatched)
MISSING(hipblasCscal)
MISSING(hipblasCsscal)
MISSING(hipblasCsyrk)
MISSING(hipblasCtrsm)
MISSING(hipblasCtrsmBatched)
MISSING(hipblasDasum)
MISSING(hipblasDaxpy)
MISSING(hipblasDdgmm)
MISSING(hipblasDgetrfBatched)
MISSING(hipblasDgetriBatched)
MISSING(hipblasDgetrsBatched)
MISSING(hipblasDnrm2)
MISSING(hipblasDsbmv)
MISSING(hipblasDscal)
MISSING(hipblasDsyrk)
MISSING(hipblasDtrsm)
MISSING(hipblasDtrsmBatched)
MISSING(hipblasDzasum)
MISSING(hipblasDznrm2)
MISSING(hipblasIcamax)
MISSING(hipblasIcamin)
MISSING(hipblasIdamax)
MISSING(hipblasIdamin)
MISSING(hipblasIsamax)
MISSING(hipblasIsamin)
MISSING(hipblasIzamax)
MISSING(hipblasIzamin)
MISSING(hipblasSasum)
MISSING(hipblasSaxpy)
MISSING(hipblasScasum)
MISSING(hipblasScnrm2)
MISSING(hipblasSdgmm)
MISSING(hipblasSgetrfBatched)
MISSING(hipblasSgetriBatched)
MISSING(hipblasSgetrsBatched)
MISSING(hipblasSnrm2)
MISSING(hipblasSsbmv)
MISSING(hipblasSscal)
MISSING(hipblasSsyrk)
MISSING(hipblasStrsm)
MISSING(hipblasStrsmBatched)
MISSING(hipblasZaxpy)
MISSING(hipblasZdgmm)
MISSING(hipblasZdscal)
MISSING(hipblasZgetrfBatched)
MISSING(hipblasZgetriBatched)
MISSING(hipblasZgetrsBatched)
MISSING(hipblasZscal)
MISSING(hipblasZsyrk)
MISSING(hipblasZtrsm)
MISSING(hipblasZtrsmBatched)
