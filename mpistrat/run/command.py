"""The command ``mpistrat run``: its options, and the order of what happens before the program."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from types import CodeType

from mpistrat.cluster import mpi, report_once
from mpistrat.cluster.devices.core_shares import share_of_cores
from mpistrat.cluster.resolvers.tf_config_of_ranks import VARIABLE, JobRoles, set_current
from mpistrat.cluster.topology import Topology, host_name
from mpistrat.errors import MpistratError, UsageError
from mpistrat.run import downloads, explanation, folders, tensorflow_import
from mpistrat.run.program import (
    NoProgramError,
    Program,
    code_program,
    file_program,
    module_program,
)
from mpistrat.run.roles import check_servers, names_servers, needed_roles
from mpistrat.system import log

__all__ = ["main"]

_USAGE = """\
mpistrat run [--ps N] [--evaluators N] [--explain] PROGRAM [ARGUMENT ...]
       mpistrat run [...] -m MODULE [ARGUMENT ...]
       mpistrat run [...] -c CODE [ARGUMENT ...]"""
_ABOUT = """\
Run a program written for tf.distribute on the ranks of mpirun or srun, as it is: within it the
strategies, servers and cluster resolvers of tf.distribute are mpistrat's, and TF_CONFIG says what
MPI knows."""
_NO_PROGRAM = 2
_WITH_VALUE = ("--ps", "--evaluators")


def main(arguments: Sequence[str]) -> None:
    """Run the program that the command line names; end with its exit status."""
    options = _parser().parse_args(_split(arguments))
    try:
        program, rest = _program(options)
    except NoProgramError as error:
        say = partial(_say, error)
        report_once.leave(_NO_PROGRAM, say, unheard=say)  # another rank may have the file
    try:
        prepare(program, options.ps, options.evaluators)
    except MpistratError as error:
        is_of_all = isinstance(error, UsageError)  # all ranks have the same options
        if report_once.is_reporter() or not is_of_all:
            _say(error)
        sys.exit(_NO_PROGRAM)
    try:
        program.run(rest)
        explanation.note_without_strategy()
    finally:
        if options.explain:
            explanation.show()


def _say(error: Exception) -> bool:
    sys.stderr.write(f"mpistrat run: {error}\n")
    return True


def prepare(program: Program, num_ps: int | None, num_evaluators: int) -> None:
    """Start MPI, tell the program its role, and exchange what it gets. **Collective.**"""
    comm = mpi.world()  # it starts MPI, without which nothing says which rank may log
    rank, size = mpi.world_place() or (0, 1)
    log.configure(rank, size, host_name())
    check_servers(num_ps, num_evaluators, size)
    text = None if isinstance(program.source, CodeType) else program.source
    counts, is_told = needed_roles(num_ps, num_evaluators, text)
    given = os.environ.get(VARIABLE)
    roles = JobRoles.of_job(*counts, is_told=is_told).named_as_in(given)
    roles.publish()
    set_current(roles)
    if size > 1:
        folders.let_ranks_share(program.path)
        downloads.write_downloads_whole()
    if text is not None:
        explanation.warn_of_private_imports(text, program.file)
    share = None if comm is None else share_of_cores(Topology.of(comm), comm.allgather)
    if roles.num_ps or (text is not None and names_servers(text)):
        share = None  # servers in threads of one process wait for each other
    tensorflow_import.exchange_at_import(share)


def _program(options: argparse.Namespace) -> tuple[Program, list[str]]:
    for given, make in ((options.module, module_program), (options.code, code_program)):
        if given is not None:
            if not given:
                raise NoProgramError("no program; expected one after -m or -c")
            return make(given[0]), given[1:]
    if options.program in ([], ["--"]):
        raise NoProgramError("no program; expected a Python file, -m MODULE or -c CODE")
    rest = options.program[1:] if options.program[0] == "--" else options.program
    return file_program(rest[0]), rest[1:]


def _split(arguments: Sequence[str]) -> list[str]:
    """Make two arguments of ``-mMODULE`` and ``-cCODE``; argparse would take those after it."""
    before = ""
    for at, one in enumerate(arguments):
        if one[:2] in ("-m", "-c"):
            return [*arguments[:at], one[:2], *filter(None, [one[2:]]), *arguments[at + 1 :]]
        if one == "--" or not (one.startswith("-") or before in _WITH_VALUE):
            break  # the program begins
        before = one
    return list(arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("mpistrat run", _USAGE, _ABOUT, allow_abbrev=False)
    rest = argparse.REMAINDER
    parser.add_argument(
        "--ps",
        type=int,
        metavar="N",
        help="the last N ranks are parameter servers, rank 0 is the chief, the others are"
        " workers; default: what TF_CONFIG says if it is set, 1 for a program whose only"
        " strategy is ParameterServerStrategy, else 0",
    )
    parser.add_argument(
        "--evaluators", type=int, default=0, metavar="N", help="ranks after those that evaluate"
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="list at the end, on rank 0, what was exchanged and where the program used it",
    )
    parser.add_argument("-m", dest="module", nargs=rest, help="run a module")
    parser.add_argument("-c", dest="code", nargs=rest, help="run a text")
    parser.add_argument("program", nargs=rest, help=argparse.SUPPRESS)
    return parser
