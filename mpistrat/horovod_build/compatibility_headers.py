"""Write the header that Horovod includes and TensorFlow 2.21 does not have.

Horovod's last release is older. One of its sources, that of its XLA operations, includes a header
of XLA by the path that TensorFlow had until 2.18, and names a type that has moved since. For GPUs
its other source calls a function that TensorFlow no longer exports. As one source alone includes
the header, it can hold that function.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["write_compatibility_headers"]

_XLA_BUILDER = "tensorflow/compiler/xla/client/xla_builder.h"
_XLA_BUILDER_TEXT = """\
#pragma once
#include "absl/status/statusor.h"
#include "xla/hlo/builder/xla_builder.h"
namespace xla {
using absl::StatusOr;  // the part for GPUs has it by this name
}
#if HAVE_CUDA
#include <cuda_runtime.h>
#include "xla/stream_executor/stream.h"
namespace stream_executor {
namespace gpu {
// Horovod's operations declare this function and call it. One source includes this header.
cudaStream_t AsGpuStreamValue(Stream* stream) {
  return static_cast<cudaStream_t>(stream->platform_specific_handle().stream);
}
}  // namespace gpu
}  // namespace stream_executor
#endif
"""


def write_compatibility_headers(folder: Path) -> None:
    """Write the header that Horovod includes by a path that this TensorFlow lacks."""
    header = folder / _XLA_BUILDER
    header.parent.mkdir(parents=True, exist_ok=True)
    header.write_text(_XLA_BUILDER_TEXT, encoding="utf-8")
