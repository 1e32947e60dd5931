"""The CPU mask that this process was started with.

The command line imports this module before numpy, since libraries may narrow the mask when they
are loaded.
"""

from __future__ import annotations

from mpistrat.system.cpus import cores

__all__ = ["START_MASK"]

START_MASK = cores.usable()
