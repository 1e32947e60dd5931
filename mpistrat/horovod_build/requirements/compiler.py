"""Find the C++ compiler, and check that it knows C++17."""

from __future__ import annotations

from dataclasses import dataclass

from mpistrat.errors import BackendUnavailableError
from mpistrat.horovod_build.requirements.asking import ask
from mpistrat.system.compile_on_demand import compiler

__all__ = ["Compiler", "find_compiler"]

_ADVICE = (
    "install GCC 9 or newer (Debian: apt install g++; a cluster: its module of GCC), or set CXX to"
    " one"
)


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler.

    Attributes
    ----------
    command
        What starts it: a program, and options that ``CXX`` has after it.
    version
        The first line of what it says of itself.
    """

    command: tuple[str, ...]
    version: str

    def __str__(self) -> str:
        """Return the line of the report."""
        return f"{self.version} ({' '.join(self.command)})"


def find_compiler() -> Compiler:
    """Return the C++ compiler: ``$CXX``, or the first usual one on the PATH. **Local.**

    Raises
    ------
    BackendUnavailableError
        There is none, or it cannot compile C++17.
    """
    try:
        command = compiler()
    except BackendUnavailableError as error:
        raise BackendUnavailableError(f"{error}; {_ADVICE}") from None
    version = ask([*command, "--version"], _ADVICE).strip().partition("\n")[0]
    # TensorFlow's headers are C++17.
    check = [*command, "-std=c++17", "-fsyntax-only", "-x", "c++", "-"]
    ask(check, f"{version} cannot compile C++17; {_ADVICE}", stdin="#include <optional>\n")
    return Compiler(tuple(command), version)
