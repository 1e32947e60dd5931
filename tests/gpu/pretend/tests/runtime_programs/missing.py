"""Calls functions that do not exist on the pretended GPU; without CuPy, whose import is slow."""

import ctypes
import os
import sys


def call() -> None:
    """Call those that NAMES names, with arguments that none looks at but a launch's last one."""
    libraries = [ctypes.CDLL(name) for name in ("libamdhip64.so.7", "librccl.so.1")]
    for name in os.environ["NAMES"].split():
        library = libraries[name.startswith("nccl")]
        arguments = [ctypes.c_void_p(0)] * 10 + [ctypes.c_void_p(8)]
        print(name, "returned", getattr(library, name)(*arguments), flush=True)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        globals()[name]()
        print(f"{name} is done", flush=True)
