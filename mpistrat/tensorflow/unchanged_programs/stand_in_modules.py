"""Modules in the place of ``tf.distribute``, and of its copies below ``tf.compat``."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from mpistrat.tensorflow.unchanged_programs import uses
from mpistrat.tensorflow.unchanged_programs.exchanged_names import EXCHANGED, exchanged

__all__ = ["install"]

_API = "tensorflow"
_OTHER_MEANING = {
    "compat.v1.": {"experimental.ParameterServerStrategy", "experimental.TPUStrategy"},
}
"""Names of TensorFlow 1 that mean another class: those for estimators and sessions."""


class _StandIn(ModuleType):
    """A module of TensorFlow's API with some of its names exchanged.

    Parameters
    ----------
    original
        TensorFlow's module.
    prefix
        Of names: "" for ``tf.distribute``, "experimental." for its submodule of that name.
    shown
        What programs call it, such as "tf.distribute".
    kept
        Names that are not exchanged here.
    """

    def __init__(self, original: Any, prefix: str, shown: str, kept: set[str]) -> None:
        super().__init__(original.__name__, original.__doc__)
        here = {
            name.removeprefix(prefix)
            for name in EXCHANGED
            if name.startswith(prefix) and name not in kept
        }
        names = {name for name in here if "." not in name and hasattr(original, name)}
        vars(self).update(
            {name: value for name, value in vars(original).items() if name not in names}
        )
        self._original, self._shown = original, shown
        self._names = {name: prefix + name for name in names}

    def __getattr__(self, name: str) -> Any:
        # Only exchanged names, and those that TensorFlow itself makes on demand, come here.
        if name not in vars(self).get("_names", ()):
            return getattr(vars(self)["_original"], name)
        uses.note(f"{self._shown}.{name}", EXCHANGED[self._names[name]], sys._getframe(1))
        return exchanged(self._names[name])

    def __dir__(self) -> list[str]:
        return sorted({*dir(self._original)})


def install() -> None:
    """Put stand-ins in the place of ``tf.distribute``, everywhere in TensorFlow's API.

    A program gets them by ``tf.distribute``, ``from tensorflow import distribute`` and
    ``tf.compat.v1.distribute``; what imports ``tensorflow.python`` gets TensorFlow's own.
    **Local**, idempotent.
    """
    if isinstance(sys.modules[_API].distribute, _StandIn):
        return
    made: dict[int, _StandIn] = {}
    for holder in [m for name, m in sys.modules.items() if _is_api(name)]:
        original = vars(holder).get("distribute")
        if isinstance(original, ModuleType):
            stand_in = made.get(id(original)) or _tree(original, "")
            made[id(original)] = stand_in
            holder.distribute = stand_in  # type: ignore[attr-defined]


def _is_api(name: str) -> bool:
    return name == _API or name.startswith(f"{_API}._api.")


def _tree(original: Any, prefix: str) -> _StandIn:
    """Return the stand-in of a module, with those of its submodules, known to ``sys.modules``."""
    version = "compat.v1." if ".compat.v1." in original.__name__ else ""
    shown = f"tf.{version}distribute.{prefix}".rstrip(".")
    found = _StandIn(original, prefix, shown, _OTHER_MEANING.get(version, set()))
    below = {
        name.removeprefix(prefix).partition(".") for name in EXCHANGED if name.startswith(prefix)
    }
    for name in {first for first, dot, _ in below if dot}:
        if isinstance(child := getattr(original, name, None), ModuleType):
            setattr(found, name, _tree(child, f"{prefix}{name}."))
    for key in [key for key, module in sys.modules.items() if module is original]:
        sys.modules[key] = found
        public = key.replace("._api.v2.", ".")
        # Python would load the files of tf.compat a second time under these names. The package
        # tensorflow.distribute is another one, which is not tf.distribute.
        if ".compat." in public:
            sys.modules[public] = found
    return found
