"""Tell which CPUs share a NUMA domain of this machine, as Linux numbers both."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from mpistrat.system.number_ranges import read_ranges

__all__ = ["domains_of", "numa_domains"]

_DOMAINS = Path("/sys/devices/system/node")


def numa_domains(folder: Path = _DOMAINS) -> dict[int, frozenset[int]]:
    """Return the CPUs of each NUMA domain that has some, by its number. **Local.**

    It is empty where Linux does not tell; ``mpistrat doctor`` calls a domain a NUMA node.

    Parameters
    ----------
    folder
        Of ``node0/cpulist`` and so on.
    """
    found = {}
    for file in folder.glob("node*/cpulist"):
        name = re.fullmatch(r"node(\d+)", file.parent.name)
        try:
            cpus = read_ranges(file.read_text())
        except (OSError, ValueError):
            continue
        if name is not None and cpus:
            found[int(name[1])] = cpus
    return dict(sorted(found.items()))


def domains_of(cpus: Collection[int], folder: Path = _DOMAINS) -> list[int]:
    """Return the numbers of the domains with any of these CPUs; empty if unknown. **Local.**"""
    wanted = frozenset(cpus)
    return [number for number, here in numa_domains(folder).items() if here & wanted]
