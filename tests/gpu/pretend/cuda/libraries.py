"""The same libraries under CUDA's names, for CuPy's CUDA branch (README.md)."""

from pathlib import Path

from gpu.pretend.build import PARTS, Part, build

__all__ = ["CUDA_PARTS", "build_libraries"]

# Ours are apart: some need NVIDIA's headers, others name functions that those declare otherwise.
CUDA_PARTS = {
    "libcudart.so.13": Part(
        PARTS["libamdhip64.so.7"].sources, "cuda/runtime/cudart.map", apart=("cuda/runtime/*.cc",)
    ),
    "libcuda.so.1": Part(
        (), "cuda/driver/cuda.map", needs="libcudart.so.13", apart=("cuda/driver/*.cc",)
    ),
    "libnvrtc.so.13": Part(
        PARTS["libhiprtc.so.7"].sources, "cuda/compiler/nvrtc.map", apart=("cuda/compiler/*.cc",)
    ),
    "libnccl.so.2": PARTS["librccl.so.1"]._replace(needs="libcudart.so.13"),
    "pretend-device": PARTS["pretend-device"],
}


def build_libraries(headers: Path) -> Path:
    """Build all parts unless they are there; return the folder that has them.

    Parameters
    ----------
    headers
        The folder of NVIDIA's headers: structures and numbers of CUDA are taken from there.

    Raises
    ------
    RuntimeError
        A source does not compile; it carries the compiler's messages.
    """
    # A warp has 32 threads, a wavefront 64.
    return build(CUDA_PARTS, ["-DPRETEND_CUDA", "-DPRETEND_LANES=32", f"-isystem{headers}"])
