"""Choose the signal that tells a job of its end, when it comes, and who gets it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from mpistrat.errors import UsageError
from mpistrat.sites.rendering import walltime
from mpistrat.sites.rendering.layout import Layout
from mpistrat.sites.rendering.lines import Line, by_default, by_option, by_site
from mpistrat.sites.rendering.options import Options, Strategy
from mpistrat.sites.schema import Site

__all__ = ["goes_to_script", "lead_line", "signal_line", "signals_of"]

_DEFAULT = "--signal=USR1@300"
_SIGNAL = re.compile(r"(?:--signal=)?(?:B:)?(USR1|USR2|TERM|INT|CONT|HUP)@([1-9]\d{0,4})")


def goes_to_script(site: Site, launcher: str) -> bool:
    """Return whether the script gets the signal and passes it to the ranks. **Local.**

    Slurm's steps are the ranks only where srun starts them.
    """
    to = site.signal.to
    return launcher != "srun" or (to is not None and to.value == "batch")


def signal_line(site: Site, options: Options, layout: Layout, launcher: str) -> Iterator[Line]:
    """Yield the directive ``--signal``, unless the job is to have none.

    Raises
    ------
    UsageError
        The option ``--signal`` cannot be read.
    """
    flag = site.signal.flag
    is_suite = options.strategy is Strategy.SCALING  # its runs are short, and save nothing
    if options.signal == "none" or (options.signal is None and is_suite):
        return
    name, lead_s = _parsed(options.signal or (flag.value if flag else _DEFAULT))
    if options.signal is None:
        shorter_s = walltime.lead_s(lead_s, layout.duration_s)
        if shorter_s is None:
            return
        lead_s = shorter_s
    to = "B:" if goes_to_script(site, launcher) else ""
    text = f"--signal={to}{name}@{lead_s}"
    whom = "this script, which tells the ranks" if to else "the ranks"
    comment = f"to {whom}: save, {lead_s} s before the end"
    if options.signal is not None:
        yield by_option("--signal", text)
    elif flag:
        yield by_site(site, flag, text)
    else:
        yield by_default(text, f"{comment} (mpistrat.PreemptionHandler)", comment)


def signals_of(directives: Iterable[Line]) -> list[str]:
    """Return the signals that a script passes to the ranks: that of ``--signal``, and TERM."""
    names = [name for name, _ in _stated(directives)]
    return [*(name for name in names if name != "TERM"), "TERM"]


def lead_line(directives: Iterable[Line]) -> Iterator[Line]:
    """Yield the variable that tells the program how long before the end the signal comes."""
    for _, lead_s in _stated(directives):
        as_above = "seconds, as in --signal above"
        yield by_default(f"MPISTRAT_SIGNAL_LEAD={lead_s}", as_above, as_above)


def _stated(directives: Iterable[Line]) -> Iterator[tuple[str, int]]:
    for line in directives:
        found = _SIGNAL.fullmatch(line.text)
        if line.text.startswith("--signal") and found:
            yield found[1], int(found[2])


def _parsed(text: str) -> tuple[str, int]:
    found = _SIGNAL.fullmatch(text)
    if not found:
        raise UsageError(
            f"--signal {text!r}: expected SIGNAL@SECONDS, such as USR1@300 or TERM@60, or none"
        )
    return found[1], int(found[2])
