"""Horovod's sources find headers by the names of an older TensorFlow."""

import os
import shutil
import subprocess

import pytest

from mpistrat.horovod_build.compatibility_headers import write_compatibility_headers

OLD_NAME = '#include "tensorflow/compiler/xla/client/xla_builder.h"\n'
PRETENDED = {
    "absl/status/statusor.h": "namespace absl { template <class T> struct StatusOr {}; }",
    "cuda_runtime.h": "typedef struct CUstream_st* cudaStream_t;",
    "xla/hlo/builder/xla_builder.h": "struct XlaBuilder {};",
    "xla/stream_executor/stream.h": """
        namespace stream_executor {
        struct Stream {
          struct Handle { void* stream; };
          virtual Handle platform_specific_handle() const { return {(void*)42}; }
        };
        }
    """,
}


@pytest.fixture
def compiled(tmp_path):
    """Return what compiles and runs a program against pretended headers of TensorFlow and CUDA."""
    if shutil.which("g++") is None:
        pytest.skip("there is no g++")
    write_compatibility_headers(tmp_path)
    for name, text in PRETENDED.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#pragma once\n{text}\n", encoding="utf-8")

    def run(text, *options):
        env = {**os.environ, "CPLUS_INCLUDE_PATH": str(tmp_path)}
        program = tmp_path / "program"
        command = ["g++", "-std=c++17", *options, "-x", "c++", "-", "-o", str(program)]
        subprocess.run(command, input=text, env=env, text=True, timeout=60, check=True)
        return subprocess.run([str(program)], timeout=60, check=False).returncode

    return run


def test_the_old_name_of_the_header_gives_the_new_one(compiled):
    use = "int main() { XlaBuilder builder; xla::StatusOr<int> value; return 7; }\n"
    assert compiled(f"{OLD_NAME}{OLD_NAME}{use}") == 7


def test_the_function_that_gives_the_stream_of_a_gpu(compiled):
    # As Horovod's operations declare it, and call it.
    declared = (
        "#include <cuda_runtime.h>\nnamespace stream_executor { struct Stream; namespace gpu {\n"
    )
    declared += "cudaStream_t AsGpuStreamValue(Stream* stream); } }\n"
    use = "int main() { stream_executor::Stream one;\n"
    use += "return (long)stream_executor::gpu::AsGpuStreamValue(&one); }\n"
    assert compiled(f"{declared}{OLD_NAME}{use}", "-DHAVE_CUDA=1") == 42
