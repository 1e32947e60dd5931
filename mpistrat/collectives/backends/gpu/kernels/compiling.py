"""Compile kernels at run time, and keep their machine code in CuPy's folder for later processes.

By CuPy's compiler, but not by ``cupy.RawModule``: that adds an option of its own after all others,
on NVIDIA and on AMD, by which subnormal numbers of float32 become 0. A sum would then differ from
the CPU's, and 0 times infinity is NaN where a subnormal number times infinity is not.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from mpistrat.system.files.atomic_files import beside

__all__ = ["loaded"]

_DIGEST_BYTES = hashlib.sha256().digest_size


def loaded(text: str, options: tuple[str, ...]) -> Any:
    """Return a module of CuPy with the kernels of a text, for the current device.

    Parameters
    ----------
    text
        In C++, with nothing that is included from files.
    options
        Of the vendor's compiler at run time, NVRTC or hipRTC.
    """
    import cupy

    module = cupy.cuda.function.Module()
    module.load(_machine_code(text, options))
    return module


def _machine_code(text: str, options: tuple[str, ...]) -> bytes:
    from cupy.cuda import compiler

    name = f"mpistrat-{hashlib.sha256(_key(text, options).encode()).hexdigest()}"
    folder = _folder()
    code = None if folder is None else _kept(folder / name)
    if code is None:
        code, _ = compiler.compile_using_nvrtc(text, options, None, f"{name}.cu")
        if folder is not None:
            _keep(folder / name, code)
    return bytes(code)


def _key(text: str, options: tuple[str, ...]) -> str:
    """Return what machine code depends on."""
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.runtime.getDevice())
    model = [properties["major"], properties["minor"], properties.get("gcnArchName")]
    versions = [cupy.__version__, cupy.cuda.nvrtc.getVersion()]
    return "\n".join(map(str, [*versions, *model, options, text]))


def _folder() -> Path | None:
    """Return where CuPy keeps its kernels; None if it keeps none in files."""
    if os.environ.get("CUPY_CACHE_IN_MEMORY") == "1":
        return None
    # Not by Path: a user of a container may have no home folder, which is an error there.
    folder = os.environ.get("CUPY_CACHE_DIR") or os.path.expanduser("~/.cupy/kernel_cache")
    return Path(folder)


def _kept(path: Path) -> bytes | None:
    """Return the machine code of a file; None if there is none, or not all of it."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, code = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    return code if hashlib.sha256(code).digest() == digest else None


def _keep(path: Path, code: bytes) -> None:
    """Write a file that other processes see whole or not at all."""
    with suppress(OSError):  # a folder that is full or read-only: later processes compile again
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside(path) as own:  # not flushed to the disk: the digest tells what was cut off
            own.write_bytes(hashlib.sha256(code).digest() + code)
            own.replace(path)
