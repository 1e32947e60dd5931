// NCCL's documented interface as RCCL exports it, in our own declarations: names, numbers, layouts.
#pragma once

#include <cstddef>

extern "C" {
typedef struct ihipStream_t* hipStream_t;
typedef struct ncclComm* ncclComm_t;

typedef enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
} ncclResult_t;

typedef enum { ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg, ncclNumOps } ncclRedOp_t;

typedef enum {
  ncclInt8,
  ncclUint8,
  ncclInt32,
  ncclUint32,
  ncclInt64,
  ncclUint64,
  ncclFloat16,
  ncclFloat32,
  ncclFloat64,
  ncclBfloat16,
  ncclNumTypes,
} ncclDataType_t;

typedef struct {
  char internal[128];
} ncclUniqueId;

// The start of the structure: later versions append members, and `size` says how many are there.
typedef struct {
  size_t size;
  unsigned magic, version;
  int blocking;
} ncclConfig_t;
}

namespace pretend {
constexpr int kNcclVersion = 22606;  // that of the headers with which CuPy's wheel was built
constexpr unsigned kConfigMagic = 0xcafebeef;
constexpr int kUndefined = -2147483647 - 1;  // NCCL_CONFIG_UNDEF_INT
constexpr int kNoColor = -1;                 // NCCL_SPLIT_NOCOLOR
}  // namespace pretend

#define NCCL_API extern "C" __attribute__((visibility("default")))
