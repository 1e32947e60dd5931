"""Read what a job adds to its output, line by line."""

from __future__ import annotations

from pathlib import Path

__all__ = ["Tail"]


class Tail:
    """What comes after a place in a file that grows; it need not exist yet.

    Parameters
    ----------
    file
        The output.
    """

    def __init__(self, file: Path) -> None:
        self._file, self._offset, self._rest = file, 0, b""

    def lines(self) -> list[str]:
        """Return the whole lines that were added since the last call. **Local**, does not wait."""
        *whole, self._rest = (self._rest + self._added()).split(b"\n")
        return [line.decode(errors="replace") for line in whole]

    def rest(self) -> list[str]:
        """Return what is left at the end: whole lines, and one that has no end."""
        lines = self.lines()
        last, self._rest = self._rest.decode(errors="replace"), b""
        return [*lines, last] if last else lines

    def _added(self) -> bytes:
        try:
            with self._file.open("rb") as file:
                if self._file.stat().st_size < self._offset:  # it was begun anew
                    self._offset = 0
                file.seek(self._offset)
                added = file.read()
        except OSError:  # not there yet, or the file system is busy
            return b""
        self._offset += len(added)
        return added
