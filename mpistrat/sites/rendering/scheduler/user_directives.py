"""Read the directives that a user gives; those with an option of their own are refused."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mpistrat.errors import UsageError
from mpistrat.sites.flags import option_name
from mpistrat.sites.rendering.lines import Line, by_option
from mpistrat.sites.rendering.quoting import checked_line, directive_value, pbs_value

__all__ = ["given_line", "own_option"]

# The rest of a script follows from these values: it would not know of one in a directive.
_SLURM = {
    "--account": "--account NAME",
    "--array": "--strategy array --array INDICES",
    "--cpus-per-task": "--cpus-per-task N",
    "--gpus": "--gpus N, of each node",
    "--gpus-per-node": "--gpus N",
    "--job-name": "--name NAME",
    "--nodes": "--nodes N",
    "--ntasks": "--ranks N",
    "--ntasks-per-node": "--tasks-per-node N",
    "--partition": "--partition NAME",
    "--signal": "--signal SIGNAL@SECONDS",
    "--tasks-per-node": "--tasks-per-node N",
    "--time": "--time HH:MM:SS",
}
_PBS = {
    "-A": "--account NAME",
    "-J": "--strategy array --array FIRST-LAST",
    "-N": "--name NAME",
    "-l walltime": "--time HH:MM:SS",
    "-q": "--partition NAME",
}
_DIRECTIVE = re.compile(r"(--?[A-Za-z][\w-]*)(?:([ =])(.*))?")


def own_option(name: str, scheduler: str) -> str | None:
    """Return our option for one of the scheduler's, by its long name; None where there is none."""
    return (_PBS if scheduler == "pbs" else _SLURM).get(name)


def given_line(scheduler: str, text: str) -> Line:
    """Return a directive that the user gave, quoted.

    Raises
    ------
    UsageError
        It cannot be read, or an option of ``mpistrat slurm`` is for that.
    """
    option = f"--directive {text!r}"
    found = _DIRECTIVE.fullmatch(checked_line("--directive", text))
    if not found:
        raise UsageError(f"{option}: expected an option of the scheduler, such as '--qos=debug'")
    name, joint, value = found.groups()
    if joint == " " and re.match(r"\s*-", value):
        raise UsageError(f"{option}: expected one option; give each a --directive of its own")
    _check_has_no_option(option, text, scheduler)
    if value is None:
        return by_option(option, name)
    quoted = pbs_value(option, value) if scheduler == "pbs" else directive_value(value)
    return by_option(option, f"{name}{joint}{quoted}")


def _check_has_no_option(option: str, text: str, scheduler: str) -> None:
    own = next(_pbs_options(text) if scheduler == "pbs" else _slurm_options(text), None)
    if own is not None:
        raise UsageError(f"{option}: give it as {own}; the rest of the script follows from it")


def _slurm_options(text: str) -> Iterator[str]:
    """Yield our option for a directive of Slurm's, which takes the beginnings of names, too."""
    name = option_name(text)
    if name in _SLURM:
        yield _SLURM[name]
    elif name.startswith("--"):
        yield from (own for full, own in _SLURM.items() if full.startswith(name))


def _pbs_options(text: str) -> Iterator[str]:
    """Yield our option for a directive of PBS Pro's, whose -l may list several resources."""
    names = [option_name(text, "pbs")]
    if text.startswith("-l"):
        names += [f"-l {name}" for name in re.findall(r"[ ,l](\w+)=", text)]
    yield from (_PBS[name] for name in names if name in _PBS)
