"""Choose the signal that tells a job of its end, when it comes, and who gets it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mpistrat.errors import UsageError
from mpistrat.sites.rendering import walltime
from mpistrat.sites.rendering.layout import Layout
from mpistrat.sites.rendering.lines import Line, by_default, by_option, by_site
from mpistrat.sites.rendering.options import Options, Strategy
from mpistrat.sites.schema import Site

__all__ = ["goes_to_script", "lead_line", "signal_line", "signals_of"]

_DEFAULT = "--signal=USR1@300"
_SIGNAL = re.compile(r"(?:--signal=)?(B:)?(?:SIG)?(\w+)@([1-9]\d{0,4})", re.IGNORECASE)
_NAMES = ("USR1", "USR2", "TERM", "INT", "CONT", "HUP")
_NUMBERS = {"1": "HUP", "2": "INT", "10": "USR1", "12": "USR2", "15": "TERM", "18": "CONT"}


@dataclass(frozen=True)
class _Signal:
    """A signal, when it comes, and whether only the script is to get it (Slurm's ``B:``)."""

    name: str
    lead_s: int
    is_for_script: bool


def goes_to_script(site: Site, options: Options, launcher: str) -> bool:
    """Return whether the script gets the signal and passes it to the ranks. **Local.**

    Slurm's steps are the ranks only where srun starts them.
    """
    to, given = site.signal.to, _given(options)
    is_asked = given is not None and given.is_for_script
    return launcher != "srun" or is_asked or (to is not None and to.value == "batch")


def given_lead(options: Options) -> int | None:
    """Return the seconds of a signal that the user gives, or None. **Local.**"""
    given = _given(options)
    return given.lead_s if given else None


def signal_line(site: Site, options: Options, layout: Layout, launcher: str) -> Iterator[Line]:
    """Yield the directive ``--signal``, unless the job is to have none.

    Raises
    ------
    UsageError
        The option ``--signal`` cannot be read, or does not fit the job.
    """
    flag, given = site.signal.flag, _given(options)
    is_suite = options.strategy is Strategy.SCALING  # its runs are short, and save nothing
    if options.signal == "none" or (options.signal is None and is_suite):
        return
    to_script = goes_to_script(site, options, launcher)
    signal = given or _parsed(flag.value if flag else _DEFAULT)
    lead_s = walltime.lead_s(signal.lead_s, layout.duration_s)
    if given:
        _check(given, str(options.signal), layout, is_suite and to_script)
        lead_s = given.lead_s
    if lead_s is None:
        return
    text = f"--signal={'B:' if to_script else ''}{signal.name}@{lead_s}"
    whom = "this script, which tells the ranks" if to_script else "the ranks"
    comment = f"to {whom}: save, {lead_s} s before the end"
    if given:
        yield by_option("--signal", text)
    elif flag:
        yield by_site(site, flag, text)
    else:
        yield by_default(text, f"{comment} (mpistrat.PreemptionHandler)", comment)


def signals_of(directives: Iterable[Line]) -> list[str]:
    """Return the signals that a script passes to the ranks: that of ``--signal``, and TERM."""
    names = [signal.name for signal in _stated(directives)]
    return [*(name for name in names if name != "TERM"), "TERM"]


def lead_line(directives: Iterable[Line]) -> Iterator[Line]:
    """Yield the variable that tells the program how long before the end the signal comes."""
    for signal in _stated(directives):
        as_above = "seconds, as in --signal above"
        yield by_default(f"MPISTRAT_SIGNAL_LEAD={signal.lead_s}", as_above, as_above)


def _given(options: Options) -> _Signal | None:
    return None if options.signal in (None, "none") else _parsed(str(options.signal))


def _stated(directives: Iterable[Line]) -> Iterator[_Signal]:
    yield from (_parsed(line.text) for line in directives if line.text.startswith("--signal="))


def _check(given: _Signal, text: str, layout: Layout, is_lost: bool) -> None:
    """Refuse a signal of the user's that does the job harm."""
    if is_lost:
        raise UsageError(
            f"--signal {text} with strategy scaling: the script would end by it, and its runs save"
            " nothing; leave it out"
        )
    duration_s = layout.duration_s
    if duration_s is not None and walltime.first_told_s(given.lead_s, duration_s) == 0:
        shorter_s = walltime.lead_s(given.lead_s, duration_s)
        instead = f"--signal {given.name}@{shorter_s}" if shorter_s else "a longer --time"
        raise UsageError(
            f"--signal {text}: a job of {duration_s} s may get it at its start, save, and"
            f" be started again for ever; give it {instead}, or --signal none"
        )


def _parsed(text: str) -> _Signal:
    found = _SIGNAL.fullmatch(text)
    name = _NUMBERS.get(found[2], found[2].upper()) if found else ""
    if not found or name not in _NAMES:
        raise UsageError(
            f"--signal {text!r}: expected SIGNAL@SECONDS, such as USR1@300 or TERM@60, B:USR1@300"
            " for the script, which tells the ranks, or none; SIGNAL is one of"
            f" {', '.join(_NAMES)}"
        )
    return _Signal(name, int(found[3]), found[1] is not None)
