"""Job scripts to test: options that fit each strategy and site, and what a script consists of."""

from __future__ import annotations

import re
from typing import Any

from mpistrat.sites.lookup import known
from mpistrat.sites.rendering.options import Options, Strategy
from mpistrat.sites.rendering.script import Script, render
from mpistrat.sites.schema import Site

__all__ = ["SITES", "directives", "of", "options_for", "rendered", "words_of"]

SITES = {one.name: one.site for one in known() if one.site is not None}
_NEEDED: dict[Strategy, dict[str, Any]] = {
    Strategy.MULTI_WORKER: {"nodes": 2},
    Strategy.PARAMETER_SERVER: {"tasks_per_node": 4, "ps": 2},
    Strategy.ARRAY: {"array": "0-3"},
    Strategy.SCALING: {"nodes": 2},
}
_RANKS_UNKNOWN = ("generic-slurm",)  # and so they have to be given


def options_for(site: Site, strategy: Strategy, **others: Any) -> Options:
    """Return options with which a site takes a strategy; `others` replace some."""
    values: dict[str, Any] = {"account": "project", "time": "2:00:00", **_NEEDED.get(strategy, {})}
    values.update(others)
    if site.name in _RANKS_UNKNOWN:
        values.setdefault("tasks_per_node", 1 if strategy is Strategy.ONE_DEVICE else 2)
    return Options(strategy, **{"program": ("train.py", "--epochs", "3"), **values})


def of(site: str = "generic-slurm", strategy: Strategy = Strategy.MIRRORED, **others: Any) -> str:
    """Return the text of a site's script."""
    return rendered(site, strategy, **others).text


def rendered(site: str, strategy: Strategy, **others: Any) -> Script:
    """Return a site's script; `here` and `explain` among the others are `render`'s."""
    for_render = {name: others.pop(name) for name in ("here", "explain") if name in others}
    return render(SITES[site], options_for(SITES[site], strategy, **others), **for_render)


def directives(script: str) -> list[str]:
    """Return the directives of a script, without their comments: up to its first command."""
    heading = script.partition("\nset -eo")[0]
    lines = re.findall(r"^#(?:SBATCH|PBS) (.*)$", heading, re.MULTILINE)
    return [re.sub(r"\s{2,}# .*$", "", line) for line in lines]


def words_of(script: str, array: str) -> list[str]:
    """Return the lines of an array of the script's shell, ``array=( ... )``, without comments."""
    found = re.search(rf"^ *{array}=\(\n(.*?)^ *\)$", script, re.MULTILINE | re.DOTALL)
    lines = found[1].splitlines() if found else []
    return [re.sub(r"\s{2,}# .*$", "", line).strip() for line in lines]
