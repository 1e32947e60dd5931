"""Check that NCCL uses the fast network, by a tiny all-reduce whose log is read."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpistrat.doctor.check import Check, Problem, Verdict, failure, warning
from mpistrat.doctor.gpus.driver import visible
from mpistrat.doctor.here import Here
from mpistrat.doctor.job.job import Job, by_value
from mpistrat.doctor.job.timed_comm import TimedComm
from mpistrat.doctor.not_here import NotHere

__all__ = ["CHECK", "Transport", "judge", "network_in_log"]

_ABLE, _ALL_ABLE, _ID = 160, 161, 162
_DEBUG = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV"}
_FLOAT, _SUM = 7, 0  # ncclFloat32, ncclSum


@dataclass(frozen=True)
class Transport:
    """What NCCL has logged on one rank.

    Attributes
    ----------
    network
        "Socket", "IB", "AWS Libfabric", ...; "" where the log does not say.
    wanted
        NCCL_NET.
    error
        Why NCCL did not start, or "".
    has_fast
        Whether the node has InfiniBand or Slingshot.
    """

    network: str
    wanted: str = ""
    error: str = ""
    has_fast: bool = False


def _exchange(here: Here, comm: TimedComm) -> Transport:
    reason = _why_not()
    # All ranks have to take part, or none.
    able = comm.gather(reason, _ABLE)
    reasons = comm.share(sorted(filter(None, able.values())), _ALL_ABLE)
    if reasons:
        raise NotHere(reasons[0])
    with _log_file() as file:
        error = _all_reduce(comm)
        log = file.read_text(errors="replace") if file.exists() else ""
    return Transport(
        network_in_log(log), here.environment.get("NCCL_NET", ""), error, _has_fast_network()
    )


def _why_not() -> str:
    try:
        if not visible():
            return "no GPU"
        from cupy.cuda import nccl
    except NotHere as reason:
        return str(reason)
    except (ImportError, OSError) as error:
        return f"no CuPy with NCCL ({type(error).__name__})"
    return "" if nccl.available else "no NCCL"


@contextlib.contextmanager
def _log_file() -> Iterator[Path]:
    """Let NCCL write its log to a file meanwhile; it reads these variables when it starts."""
    with tempfile.TemporaryDirectory(prefix="mpistrat-nccl-") as folder:
        file = Path(folder) / "log"
        before = {name: os.environ.get(name) for name in (*_DEBUG, "NCCL_DEBUG_FILE")}
        os.environ.update(_DEBUG, NCCL_DEBUG_FILE=str(file))
        try:
            yield file
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def _all_reduce(comm: TimedComm) -> str:
    """Sum four bytes over all ranks by NCCL; return what went wrong, or ""."""
    import cupy
    from cupy.cuda import nccl

    unique_id = comm.share(nccl.get_unique_id() if comm.rank == 0 else None, _ID)
    answers: list[str] = []

    def run() -> None:
        answers.append(_try(cupy, nccl, comm, unique_id))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(comm.timeout_s)
    return answers[0] if answers else f"it did not end within {comm.timeout_s:g} s"


def _try(cupy: Any, nccl: Any, comm: TimedComm, unique_id: Any) -> str:
    try:
        with cupy.cuda.Device(comm.rank % len(visible())):
            group = nccl.NcclCommunicator(comm.size, unique_id, comm.rank)
            data = cupy.ones(1, cupy.float32)
            stream = cupy.cuda.get_current_stream()
            group.allReduce(data.data.ptr, data.data.ptr, 1, _FLOAT, _SUM, stream.ptr)
            stream.synchronize()
            return "" if float(data[0]) == comm.size else f"a sum of ones gave {float(data[0])}"
    except Exception as error:  # noqa: BLE001 - any error of NCCL is a finding
        return f"{type(error).__name__}: {error}"


def network_in_log(log: str) -> str:
    """Return the network that NCCL's log names, or ""."""
    found = re.search(r"Using network ([^\n]+)", log)
    if found:
        return found[1].strip()
    found = re.search(r"NET/(\w+) : Using", log)
    return found[1] if found else ""


def _has_fast_network() -> bool:
    names = [path.name for path in Path("/sys/class/net").glob("*")]
    has_infiniband = any(Path("/sys/class/infiniband").glob("*"))
    return has_infiniband or any(name.startswith("hsn") for name in names)


def judge(facts: Mapping[int, Transport], job: Job) -> Verdict:
    """Find ranks where NCCL failed, or went to sockets although there is a faster network."""
    problems: list[Problem] = []
    for transport, ranks in by_value(facts).items():
        if found := _problem(transport, job.who(ranks), job):
            problems.append(found)
    network = facts[min(facts)].network or "a network that its log does not name"
    return Verdict(f"NCCL uses {network}", facts[min(facts)].wanted, tuple(problems))


def _problem(transport: Transport, who: str, job: Job) -> Problem | None:
    plugin = "load the module of NCCL's plug-in for this network, and set NCCL_NET, so that NCCL"
    fix = f"{plugin} ends instead of taking sockets"
    if transport.error:
        return failure(
            f"NCCL on {who}: {transport.error}",
            f"a sum over all ranks{f' by {transport.wanted}' * bool(transport.wanted)}",
            "read its log: NCCL_DEBUG=INFO; a plug-in that NCCL_NET names has to be loadable",
        )
    if transport.wanted and transport.network and transport.network != transport.wanted:
        return failure(
            f"NCCL on {who} uses {transport.network}", f"{transport.wanted}, as NCCL_NET says", fix
        )
    if transport.network == "Socket" and transport.has_fast:
        report = failure if len(job.nodes) > 1 else warning
        return report(
            f"NCCL on {who} uses sockets, though the node has InfiniBand or Slingshot",
            "the fast network, which was measured to be up to 22 times faster",
            fix,
        )
    return None


CHECK = Check(
    name="network.nccl_transport",
    title="network of NCCL",
    source="CSCS, nccl.md (22 times slower); inclusionAI/AReaL#639",
    exchange=_exchange,
    judge=judge,
)
