"""Read what the dynamic linker sees of a library: needed libraries, and symbols with versions.

Only for ELF files of 64 bits, little-endian, as Linux has them on x86-64 and AArch64.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_DYNAMIC, _DYNSYM = 6, 11  # types of sections
_VERDEF, _VERNEED, _VERSYM = 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
_NEEDED = 1  # tag of an entry of the dynamic section
_HIDDEN = 0x7FFF  # the mask of a version's number


class Symbol(NamedTuple):
    """A symbol, and the version that it was bound to; "" for none."""

    name: str
    version: str


class Dynamic(NamedTuple):
    """What the linker sees of a file."""

    needed: list[str]
    undefined: list[Symbol]
    defined: list[Symbol]


class _Section(NamedTuple):
    """A section's header; the members are those of Elf64_Shdr."""

    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


def dynamic(path: Path) -> Dynamic:
    """Read a file.

    Raises
    ------
    ValueError
        It is no ELF file of 64 bits.
    """
    data = path.read_bytes()
    if data[:5] != b"\x7fELF\x02":
        raise ValueError(f"{path} is no ELF file of 64 bits")
    return _Reader(data).read()


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        (table,) = struct.unpack_from("<Q", data, 40)
        size, count = struct.unpack_from("<HH", data, 58)
        self._sections = [
            _Section(*struct.unpack_from("<IIQQQQIIQQ", data, table + i * size))
            for i in range(count)
        ]

    def read(self) -> Dynamic:
        versions = self._versions()
        numbers = self._of_type(_VERSYM)
        undefined: list[Symbol] = []
        defined: list[Symbol] = []
        for section in self._all(_DYNSYM):
            for index, at in enumerate(range(section.offset, _end(section), 24)):
                name, _, _, where, _, _ = struct.unpack_from("<IBBHQQ", self._data, at)
                if name:
                    version = versions.get(self._number(numbers, index), "")
                    symbol = Symbol(self._text(section.link, name), version)
                    (defined if where else undefined).append(symbol)
        return Dynamic(list(self._needed()), undefined, defined)

    def _needed(self) -> Iterator[str]:
        for section in self._all(_DYNAMIC):
            for at in range(section.offset, _end(section), 16):
                tag, value = struct.unpack_from("<qQ", self._data, at)
                if tag == _NEEDED:
                    yield self._text(section.link, value)

    def _versions(self) -> dict[int, str]:
        """Return the names of versions by the numbers that symbols have."""
        return {**dict(self._needed_versions()), **dict(self._defined_versions())}

    def _needed_versions(self) -> Iterator[tuple[int, str]]:
        for section in self._all(_VERNEED):
            at = section.offset
            for _ in range(section.info):
                _, count, _, first, step = struct.unpack_from("<HHIII", self._data, at)
                entry = at + first
                for _ in range(count):
                    _, _, number, name, forth = struct.unpack_from("<IHHII", self._data, entry)
                    yield number & _HIDDEN, self._text(section.link, name)
                    entry += forth
                at += step

    def _defined_versions(self) -> Iterator[tuple[int, str]]:
        for section in self._all(_VERDEF):
            at = section.offset
            for _ in range(section.info):
                header = struct.unpack_from("<HHHHIII", self._data, at)
                _, flags, number, _, _, first, step = header
                if not flags & 1:  # the first is the file's own name
                    (name,) = struct.unpack_from("<I", self._data, at + first)
                    yield number & _HIDDEN, self._text(section.link, name)
                at += step

    def _number(self, numbers: _Section | None, index: int) -> int:
        if numbers is None:
            return 0
        (number,) = struct.unpack_from("<H", self._data, numbers.offset + 2 * index)
        return int(number) & _HIDDEN

    def _text(self, section: int, at: int) -> str:
        start = self._sections[section].offset + at
        return self._data[start : self._data.index(b"\0", start)].decode()

    def _all(self, kind: int) -> Iterator[_Section]:
        return (section for section in self._sections if section.type == kind)

    def _of_type(self, kind: int) -> _Section | None:
        return next(self._all(kind), None)


def _end(section: _Section) -> int:
    return section.offset + section.size
