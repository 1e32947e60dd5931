"""Name saved values by their path: attributes and keys, joined by slashes."""

from __future__ import annotations

__all__ = ["escape", "join", "piece_name"]


def escape(name: str) -> str:
    """Return `name` without slashes, as JSON pointers do (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")


def join(path: str, name: str) -> str:
    """Return the path of the child `name` of the object at a path; an empty name adds nothing."""
    return f"{path}/{escape(name)}" if path and name else path or escape(name)


def piece_name(key: str, rows: tuple[int, int], count: int) -> str:
    """Return the name in a safetensors file of some of the `count` rows of a tensor.

    No path has a tilde before anything but 0 and 1.
    """
    if rows != (0, count):
        return f"{key}~[{rows[0]}:{rows[1]}]"
    return "~__metadata__" if key == "__metadata__" else key  # the format's own name
