"""Import a test file on a rank the way pytest does in its importlib mode."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import CodeType, ModuleType

__all__ = ["load_test_module"]


def load_test_module(name: str, file: Path) -> ModuleType:
    """Return the module made from a test file, importing it once.

    Parameters
    ----------
    name
        Its name in the process that runs pytest, so that what was pickled there is found here.
    file
        The file.

    Notes
    -----
    Its assert statements are rewritten by pytest, so that a failure on a rank shows values.
    """
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None:
        raise ImportError(f"{file} is not a Python file; expected a test module")
    module = importlib.util.module_from_spec(spec)
    # Before it is executed, as imports do: pickles and dataclasses look their module up.
    sys.modules[name] = module
    try:
        exec(_compile(file), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _compile(file: Path) -> CodeType:
    source = file.read_bytes()
    tree = ast.parse(source, str(file))
    try:
        # Not public API; without it asserts work too and show less.
        from _pytest.assertion.rewrite import rewrite_asserts

        rewrite_asserts(tree, source, str(file))
    except (ImportError, TypeError):
        # Anew: the first tree may be rewritten in part.
        tree = ast.parse(source, str(file))
    return compile(tree, str(file), "exec", dont_inherit=True)
