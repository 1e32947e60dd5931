"""Programs that start ranks by Horovod's own launcher."""

from __future__ import annotations

from collections.abc import Iterator

from mpistrat.doctor.lint.finding import Outcome, Rule, Trap
from mpistrat.doctor.lint.program import Program

__all__ = ["RULE"]

_HAPPENS = (
    "raises an error with MPICH 5 and Open MPI 5 unless Horovod was built with Gloo: Horovod does"
    " not know these launchers"
)
_INSTEAD = "mpirun -n 4 python train.py, or srun; mpistrat slurm render writes the job's script"
_RUN = ("run", "runner.run")


def _find(program: Program) -> Iterator[Trap]:
    for node in program.launches:
        yield Trap(node, Outcome.FAILS, _HAPPENS, _INSTEAD)
    for use in () if program.is_for_others else program.uses:
        if use.module == "horovod" and use.name in _RUN:
            yield Trap(use.node, Outcome.FAILS, _HAPPENS, _INSTEAD)


RULE = Rule("launcher", _find)
