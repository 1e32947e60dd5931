"""Read a program: its syntax tree, and each place where it uses a name of Horovod's."""

from __future__ import annotations

import ast
import tokenize
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from mpistrat.doctor.lint.keras_version import asks_for_keras_2, imports
from mpistrat.doctor.lint.names import Names
from mpistrat.doctor.lint.uses import MODULES, OTHER_FRAMEWORKS, Use, horovods

__all__ = ["Program", "read"]

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_STARTS = ("subprocess.", "os.", "asyncio.")


class Program:
    """A program as it is written; nothing of it is run.

    Parameters
    ----------
    file
        Its name in reports.
    text
        Its source.
    environment
        Environment variables that it would be started with.
    """

    def __init__(self, file: str, text: str, environment: Mapping[str, str]) -> None:
        self.file = file
        self.tree = ast.parse(text, filename=file)
        self.names = Names(self.tree)
        self._text = text
        self._environment = environment
        self._parents = {
            child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)
        }

    @cached_property
    def uses(self) -> list[Use]:
        """All uses of Horovod's names, in the order of the source."""
        found = [use for node in ast.walk(self.tree) if (use := self._use(node))]
        return sorted(found, key=lambda use: (use.node.lineno, use.node.col_offset))

    @cached_property
    def calls(self) -> list[ast.Call]:
        """All calls."""
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.Call)]

    @cached_property
    def launches(self) -> list[ast.expr]:
        """Texts that begin with ``horovodrun`` and are given to subprocess or the like."""
        calls = (one for one in self.calls if self._starts_programs(one))
        given = [part for call in calls for one in call.args for part in _parts(one)]
        return [part for part in given if _text(part).split(" ")[0].endswith("horovodrun")]

    @cached_property
    def is_legacy(self) -> bool:
        """Whether it asks for Keras 2 in place of 3."""
        return asks_for_keras_2(self.tree, self._environment)

    @cached_property
    def uses_horovod(self) -> bool:
        """Whether it uses Horovod for TensorFlow, or starts it; an import alone is a use."""
        return bool(self.uses or self.launches) or any(map(_is_import, ast.walk(self.tree)))

    @cached_property
    def is_for_others(self) -> bool:
        """Whether it is for PyTorch or MXNet, with Horovod or without, and not for TensorFlow."""
        others = ("torch", "mxnet", *OTHER_FRAMEWORKS)
        return not any(use.module != "horovod" for use in self.uses) and any(
            imports(node, others) for node in ast.walk(self.tree)
        )

    @cached_property
    def mentions_keras(self) -> bool:
        """Whether it names anything of Keras."""
        return any(
            isinstance(node, (ast.Name, ast.Attribute))
            and (self.names.path(node) or "").startswith(("keras", "tensorflow.keras"))
            for node in ast.walk(self.tree)
        )

    def says(self, text: str) -> bool:
        """Tell whether a text is in the program by itself, or is a variable of the environment."""
        texts = (_text(node) for node in ast.walk(self.tree) if isinstance(node, ast.Constant))
        return text in self._environment or text in texts

    def is_keras_3(self, use: Use) -> bool:
        """Tell whether the use works with Keras 3; ``horovod.keras`` does so always."""
        return not self.is_legacy or use.module == "horovod.keras"

    def called(self, *names: str) -> Iterator[tuple[Use, ast.Call]]:
        """Yield the calls of functions of Horovod's."""
        for use in self.uses:
            if use.call is not None and use.name in names:
                yield use, use.call

    def parent(self, node: ast.AST) -> ast.AST | None:
        """Return what a node is part of."""
        return self._parents.get(node)

    def above(self, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
        """Yield what the node is part of, inside out, each with its part that holds the node."""
        child, parent = node, self.parent(node)
        while parent is not None:
            yield parent, child
            child, parent = parent, self.parent(parent)

    def functions(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the functions that a node is in, inside out."""
        for one, part in self.above(node):
            if isinstance(one, _FUNCTIONS) and part not in getattr(one, "decorator_list", ()):
                yield one

    def bases(self, node: ast.expr) -> list[str]:
        """Return the base classes of an instance: of ``Net()`` or, in its methods, of ``self``."""
        if isinstance(node, ast.Name) and node.id == "self":
            own = next((one for one, _ in self.above(node) if isinstance(one, ast.ClassDef)), None)
        else:
            made = node.func if isinstance(node, ast.Call) else None
            name = made.id if isinstance(made, ast.Name) else ""
            classes = (one for one in ast.walk(self.tree) if isinstance(one, ast.ClassDef))
            own = next((one for one in classes if one.name == name), None)
        return [self.names.path(base) or "" for base in own.bases] if own else []

    def source(self, node: ast.AST) -> str:
        """Return a node as it is written, on one line."""
        place: Any = node  # an expression or a statement
        # Not by ast.get_source_segment, which splits the whole text each time.
        rows = [line.encode() for line in self.lines[place.lineno - 1 : place.end_lineno]]
        rows[-1] = rows[-1][: place.end_col_offset]
        rows[0] = rows[0][place.col_offset :]
        return " ".join(b" ".join(rows).decode().split())

    @cached_property
    def lines(self) -> list[str]:
        """The lines of the source, as Python counts them."""
        return self._text.split("\n")

    @cached_property
    def given_to(self) -> dict[str, list[ast.Call]]:
        """The calls whose first argument is a name, by that name."""
        found: dict[str, list[ast.Call]] = {}
        for call in self.calls:
            if call.args and isinstance(call.args[0], ast.Name):
                found.setdefault(call.args[0].id, []).append(call)
        return found

    def _use(self, node: ast.AST) -> Use | None:
        if not isinstance(node, (ast.Name, ast.Attribute)) or not isinstance(node.ctx, ast.Load):
            return None
        parent = self.parent(node)
        if isinstance(parent, ast.Attribute):
            return None  # a part of the name
        path = self.names.path(node)
        found = horovods(path) if path else None
        if found is None:
            return None
        call = parent if isinstance(parent, ast.Call) and parent.func is node else None
        return Use(node, *found, call)

    def _starts_programs(self, call: ast.Call) -> bool:
        return (self.names.path(call.func) or "").startswith(_STARTS)


def read(file: str, environment: Mapping[str, str]) -> Program:
    """Return a program that is in a file.

    Raises
    ------
    OSError
        If the file cannot be read.
    SyntaxError, ValueError
        If it is no Python: an encoding error is a ValueError.
    """
    with tokenize.open(file) as source:
        return Program(file, source.read(), environment)


def _is_import(node: ast.AST) -> bool:
    """Tell whether a statement imports Horovod for TensorFlow."""
    names = node.names if isinstance(node, ast.ImportFrom) and node.module == "horovod" else ()
    return imports(node, MODULES) or any(f"horovod.{one.name}" in MODULES for one in names)


def _text(node: ast.expr) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else ""


def _parts(node: ast.expr) -> list[ast.expr]:
    """Return the elements of a list or tuple, or the node itself."""
    return node.elts if isinstance(node, (ast.List, ast.Tuple)) else [node]
