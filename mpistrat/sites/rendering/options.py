"""The options of a job, as the command line has them and as templates are rendered from them."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from difflib import get_close_matches
from enum import Enum

from mpistrat.errors import UsageError

__all__ = ["Binding", "Options", "Strategy", "binding_of", "sizes_of", "strategy_of"]


class Strategy(str, Enum):
    """The kinds of jobs; each has a template of its name in ``slurm/templates``."""

    ONE_DEVICE = "one_device"
    MIRRORED = "mirrored"
    MULTI_WORKER = "multi_worker"
    CENTRAL_STORAGE = "central_storage"
    PARAMETER_SERVER = "parameter_server"
    TPU_SLICES = "tpu_slices"
    ARRAY = "array"
    SCALING = "scaling"


# Names of classes that differ from those of the kinds of jobs, in small letters.
_CLASSES = {"multiworkermirrored": Strategy.MULTI_WORKER, "tpu": Strategy.TPU_SLICES}


class Binding(str, Enum):
    """How ranks find their GPU: among all of the node, or the launcher shows each its own."""

    FULL_VIEW = "full_view"
    ISOLATED = "isolated"


@dataclass(frozen=True)
class Options:
    """What the user asks for; None where the site or a default decides.

    Attributes
    ----------
    strategy
        The kind of job.
    program
        The command to run, word by word.
    ranks
        ``"5"``: ranks of the whole job. For the scaling suite the ranks of its runs, ``"1,2,4"``.
    gpus
        GPUs that the job uses on each node.
    directives
        Directives of the scheduler besides, such as ``"--qos=debug"``.
    array
        Indices of an array of jobs, ``"0-7%4"``.
    signal
        ``"USR1@300"``, ``"B:USR1@300"`` for the script, or ``"none"``.
    python
        Python that runs the program; with a container, of its image.
    stage_environment
        Folder of a Python environment that each node gets a copy of.

    Raises
    ------
    UsageError
        The value of one is empty.
    """

    strategy: Strategy
    program: tuple[str, ...] = ()
    nodes: int = 1
    tasks_per_node: int | None = None
    ranks: str | None = None
    cpus_per_task: int | None = None
    gpus: int | None = None
    cpu_only: bool = False
    time: str | None = None
    account: str | None = None
    partition: str | None = None
    directives: tuple[str, ...] = ()
    array: str | None = None
    ps: int | None = None
    name: str | None = None
    signal: str | None = None
    binding: Binding | None = None
    mpi: str | None = None
    python: str | None = None
    container: str | None = None
    stage_environment: str | None = None
    fallback: bool = False

    def __post_init__(self) -> None:
        """Refuse empty values, which elsewhere would be taken for options that are not given."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, str) and not value.strip():
                option = f"--{field.name.replace('_', '-')}"
                raise UsageError(
                    f"{option} {value!r}: expected one line of text, not empty; give a value or"
                    " leave the option out"
                )

    @property
    def job_name(self) -> str:
        """The job's name: the one that is given, else the program's."""
        if self.name is not None:
            return self.name
        words = [word for word in self.program if word != "-m"]
        named = (word for word in words if not re.fullmatch(r"(.*/)?python[0-9.]*|-.*", word))
        word = next(named, self.strategy.value).rsplit("/", 1)[-1].removesuffix(".py")
        return re.sub(r"[^A-Za-z0-9._-]+", "-", word).strip("-.")[:40] or self.strategy.value


def strategy_of(text: str) -> Strategy:
    """Return the kind of job that a name means, as it is, with hyphens, or of a class.

    Examples
    --------
    >>> strategy_of("multi-worker") is strategy_of("MultiWorkerMirroredStrategy")
    True

    Raises
    ------
    UsageError
        It is no name of a strategy.
    """
    plain = _plain(text.rsplit(".", 1)[-1]).removesuffix("strategy")
    names = {_plain(strategy.value): strategy for strategy in Strategy}
    if strategy := {**names, **_CLASSES}.get(plain):
        return strategy
    close = [names[name].value for name in get_close_matches(plain, names, n=1)]
    meant = f"; did you mean {close[0]}?" if close else ";"
    all_names = ", ".join(strategy.value for strategy in Strategy)
    raise UsageError(f"--strategy {text!r} is not known{meant} there are {all_names}")


def binding_of(text: str) -> Binding:
    """Return the binding that a name means, as it is or with a hyphen.

    Raises
    ------
    UsageError
        It is neither.
    """
    for binding in Binding:
        if _plain(text) == _plain(binding.value):
            return binding
    raise UsageError(f"--binding {text!r}: expected full_view or isolated")


def _plain(name: str) -> str:
    return re.sub(r"[-_\s]", "", name.lower())


def sizes_of(ranks: str) -> tuple[int, ...]:
    """Return the numbers in the option ``--ranks``.

    Raises
    ------
    UsageError
        It is not a comma list of whole numbers from 1.
    """
    if not re.fullmatch(r"[1-9][0-9]{0,6}(,[1-9][0-9]{0,6})*", ranks):
        raise UsageError(
            f"--ranks {ranks!r}: expected a number such as 8, or a list such as 1,2,4"
        )
    return tuple(map(int, ranks.split(",")))
