"""Check that NCCL uses the fast network, and how fast, by an all-reduce whose log is read."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpistrat.doctor.check import Check, Problem, Verdict, failure, warning
from mpistrat.doctor.gpus.driver import usable
from mpistrat.doctor.here import Here
from mpistrat.doctor.job.job import Job, by_value
from mpistrat.doctor.job.timed_comm import TimedComm
from mpistrat.doctor.not_here import NotHere

__all__ = ["CHECK", "Transport", "judge", "network_in_log"]

_ABLE, _ALL_ABLE, _ID = 160, 161, 162
_NBYTES, _SUMS = 64 << 20, 4
_START_FACTOR = 3  # NCCL takes longer to start than messages to come
_FLOOR = 0.5  # of the site's nominal bandwidth
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
    bandwidth_gb_s
        Bus bandwidth of an all-reduce of 64 MiB, the best of three.
    """

    network: str
    wanted: str = ""
    error: str = ""
    has_fast: bool = False
    bandwidth_gb_s: float = 0.0


def _exchange(here: Here, comm: TimedComm) -> Transport:
    reason = _why_not()
    # All ranks have to take part, or none.
    able = comm.gather(reason, _ABLE)
    reasons = comm.share(sorted(filter(None, able.values())), _ALL_ABLE)
    if reasons:
        raise NotHere(reasons[0])
    with _log_file() as file:
        result = _all_reduce(comm, _device(here, comm.rank))
        log = file.read_text(errors="replace") if file.exists() else ""
    is_error = isinstance(result, str)
    return Transport(
        network=network_in_log(log),
        wanted=here.environment.get("NCCL_NET", ""),
        error=str(result) if is_error else "",
        has_fast=_has_fast_network(),
        bandwidth_gb_s=0.0 if is_error else round(float(result), 2),
    )


def _why_not() -> str:
    try:
        usable()
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


def _device(here: Here, rank: int) -> int:
    """Return the index of the GPU of a rank: by local rank, unless it sees only one."""
    local_rank = here.hosts[:rank].count(here.hosts[rank])
    return local_rank % len(usable())


def _all_reduce(comm: TimedComm, device: int) -> float | str:
    """Sum arrays over all ranks by NCCL; return the bus bandwidth in GB/s, or what went wrong."""
    from cupy.cuda import nccl

    unique_id = comm.share(nccl.get_unique_id() if comm.rank == 0 else None, _ID)
    answers: list[float | str] = []
    thread = threading.Thread(
        target=lambda: answers.append(_try(device, comm.size, comm.rank, unique_id)), daemon=True
    )
    thread.start()
    limit_s = _START_FACTOR * comm.timeout_s
    thread.join(limit_s)
    return answers[0] if answers else f"it did not end within {limit_s:g} s"


def _try(device: int, size: int, rank: int, unique_id: Any) -> float | str:
    import cupy
    from cupy.cuda import nccl

    try:
        with cupy.cuda.Device(device):
            group = nccl.NcclCommunicator(size, unique_id, rank)
            stream = cupy.cuda.get_current_stream()
            best_s = float("inf")
            for _ in range(_SUMS):
                data = cupy.ones(_NBYTES // 4, cupy.float32)
                stream.synchronize()
                begin = time.perf_counter()
                group.allReduce(data.data.ptr, data.data.ptr, data.size, _FLOAT, _SUM, stream.ptr)
                stream.synchronize()
                best_s = min(best_s, time.perf_counter() - begin)
            total = float(data[-1])
    except Exception as error:  # noqa: BLE001 - any error of NCCL is a finding
        return f"{type(error).__name__}: {error}"
    if total != size:
        return f"a sum of ones over {size} ranks gave {total:g}"
    return 2 * (size - 1) / size * _NBYTES / best_s / 1e9


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
    first = facts[min(facts)]
    slowest = min(transport.bandwidth_gb_s for transport in facts.values())
    if not problems and (found := _slow(slowest, job)):
        problems.append(found)
    network = first.network or "a network that its log does not name"
    value = f"NCCL uses {network}, 64 MiB all-reduce {slowest:.1f} GB/s"
    if any(transport.error for transport in facts.values()):
        value = "NCCL fails"
    return Verdict(value, first.wanted, tuple(problems))


def _slow(bandwidth: float, job: Job) -> Problem | None:
    """Compare the bandwidth between nodes with what the site's file says."""
    nominal = job.site.nominal.bandwidth_gb_s if job.site and len(job.nodes) > 1 else None
    if nominal is None or bandwidth >= _FLOOR * nominal.value:
        return None
    return warning(
        f"{bandwidth:.1f} GB/s for 64 MiB between {len(job.nodes)} nodes",
        f"about {nominal.value:g} GB/s, as the site's file says",
        "try other nodes to find the slow one; compare the site's variables for NCCL",
        f"#SBATCH --exclude={job.slurm_node(job.size - 1)}" if job.launcher.kind == "srun" else "",
    )


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
