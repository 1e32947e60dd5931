"""Run a Python program as ``python`` would: its ``__main__``, arguments, paths and tracebacks."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import io
import os
import sys
import zipfile
from dataclasses import dataclass, field
from types import CodeType, ModuleType, TracebackType
from typing import Any

__all__ = ["NoProgramError", "Program", "code_program", "file_program", "module_program"]

_INTERRUPTED = 130  # a shell's status of a process that Ctrl-C ended


class NoProgramError(Exception):
    """There is no such program; the text says why."""


@dataclass
class Program:
    """A program, and what Python tells it.

    Attributes
    ----------
    source
        Its text, or its code if that is all there is.
    file
        What tracebacks call it.
    argv0
        The first of ``sys.argv``.
    path
        Where its imports are looked for first.
    names
        What its ``__main__`` has besides its name.
    """

    source: bytes | str | CodeType
    file: str
    argv0: str
    path: str
    names: dict[str, Any] = field(default_factory=dict)

    def run(self, arguments: list[str]) -> None:
        """Run it, and end this process if it fails, as ``python`` would. **Local.**

        Raises
        ------
        SystemExit
            It exits by itself, or with an error, which is shown before.
        """
        main = ModuleType("__main__")
        vars(main).update(__builtins__=sys.modules["builtins"], **self.names)
        # To the end of the process: what the program registers for that may look there.
        sys.modules["__main__"] = main
        sys.argv[:] = [self.argv0, *arguments]
        if not getattr(sys.flags, "safe_path", False):
            sys.path[0] = self.path
        code = None
        try:
            code = self.code()
            exec(code, vars(main))
        except SystemExit:
            raise
        except BaseException as error:  # noqa: BLE001 - Python shows any
            _show(error, code)
            sys.exit(_INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1)

    def code(self) -> CodeType:
        """Return its compiled code."""
        if isinstance(self.source, CodeType):
            return self.source
        return compile(self.source, self.file, "exec", dont_inherit=True)


def _show(error: BaseException, code: CodeType | None) -> None:
    """Show an error as uncaught, from the program's first line on."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_code is not code:
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)


def file_program(path: str) -> Program:
    """Return the program in a file, or that of a folder or zip file with a ``__main__.py``.

    Raises
    ------
    NoProgramError
        It cannot be read.
    """
    if os.path.isdir(path) or (os.path.isfile(path) and zipfile.is_zipfile(path)):
        spec = importlib.machinery.PathFinder.find_spec("__main__", [path])
        if spec is None:
            raise NoProgramError(f"there is no __main__ module in {path!r}")
        return _of_spec(spec, path, os.path.abspath(path))
    whole = os.path.abspath(path)
    try:
        with io.open_code(whole) as file:
            source = file.read()
    except OSError as error:
        raise NoProgramError(f"cannot open {path!r}: {error.strerror}") from error
    loader: Any = importlib.machinery.SourceFileLoader("__main__", whole)
    if source.startswith(importlib.util.MAGIC_NUMBER):  # a compiled file
        loader = importlib.machinery.SourcelessFileLoader("__main__", whole)
        source = loader.get_code("__main__")
    names = {"__file__": whole, "__cached__": None, "__loader__": loader, "__spec__": None}
    folder = os.path.dirname(os.path.realpath(path))
    return Program(source, whole, path, folder, {**names, "__package__": None})


def module_program(name: str) -> Program:
    """Return the program of a module, or of a package's ``__main__``; imports its parents.

    Raises
    ------
    NoProgramError
        There is none.
    """
    sys.path[0] = os.getcwd()
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except (ModuleNotFoundError, ValueError) as error:
        raise NoProgramError(f"no module {name!r}: {error}") from error
    if spec is None:
        raise NoProgramError(f"no module named {name!r} that can be run")
    return _of_spec(spec, str(spec.origin), os.getcwd())


def code_program(code: str) -> Program:
    """Return the program that a text is."""
    return Program(code.encode(), "<string>", "-c", "", {"__spec__": None, "__package__": None})


def _of_spec(spec: importlib.machinery.ModuleSpec, argv0: str, path: str) -> Program:
    loader: Any = spec.loader
    if not hasattr(loader, "get_code"):
        raise NoProgramError(f"{spec.name} is no Python program")
    source = loader.get_source(spec.name) or loader.get_code(spec.name)
    if source is None:
        raise NoProgramError(f"{spec.name} has no Python code")
    names = {
        "__file__": spec.origin,
        "__cached__": spec.cached,
        "__loader__": loader,
        "__spec__": spec,
        "__package__": spec.parent,
    }
    return Program(source, str(spec.origin), argv0, path, names)
