"""Choose what carries arrays between GPUs, from where the GPUs of the ranks are.

All ranks choose alike, since all compare the same facts.
"""

from __future__ import annotations

from collections.abc import Sequence

from mpistrat.collectives.backends.gpu.facts import Facts
from mpistrat.collectives.backends.gpu.kernels.reductions import MAX_RANKS
from mpistrat.errors import BackendUnavailableError

_MOST_ONE_SHOT = 8  # ranks

__all__ = ["choose", "lacking_nccl", "why_no_one_shot"]


def choose(facts: Sequence[Facts]) -> list[str]:
    """Return the carriers that may serve these ranks, the best one first.

    NCCL where every rank has a GPU of its own and the same NCCL: it is not made for ranks that
    share one. Mapped memory where all ranks are on one node, and no more than a kernel can reduce.
    The host's memory serves all.

    Raises
    ------
    BackendUnavailableError
        MPISTRAT_GPU_CARRIER asks for one that cannot serve them; the same on all ranks.
    """
    gpus = {(one.host, one.bus) for one in facts}
    obstacles = {
        "nccl": _why_no_nccl(facts, len(gpus)),
        "peer_memory": _why_no_peer_memory(facts),
        "staged": None,
    }
    wanted = facts[0].carrier  # the same on all ranks: settings are compared when they start
    if wanted == "auto":
        # For a rank alone NCCL has nothing to do.
        names = [name for name, obstacle in obstacles.items() if obstacle is None]
        return [name for name in names if name != "nccl" or len(facts) > 1]
    if obstacles[wanted] is not None:
        raise BackendUnavailableError(f"MPISTRAT_GPU_CARRIER={wanted}: {obstacles[wanted]}")
    return [wanted]


def lacking_nccl(facts: Sequence[Facts]) -> str | None:
    """Return what keeps NCCL from ranks that have a GPU each, where that can be mended."""
    gpus = {(one.host, one.bus) for one in facts}
    if facts[0].carrier != "auto" or not 1 < len(facts) == len(gpus):
        return None
    return _why_no_nccl(facts, len(gpus))


def why_no_one_shot(facts: Sequence[Facts]) -> str | None:
    """Return why NCCL all-reduces short arrays of these ranks, too; None if one kernel may.

    Kernels then wait for each other, so each rank needs a GPU of its own, which no other kernel
    can keep it from.
    """
    num = len(facts)
    obstacles = {
        "MPISTRAT_GPU_ONE_SHOT=off": facts[0].one_shot == "off",
        "the ranks are on several nodes": len({one.host for one in facts}) > 1,
        f"{num} ranks; expected 2 to {_MOST_ONE_SHOT}": not 1 < num <= _MOST_ONE_SHOT,
        "some ranks share a GPU": len({one.bus for one in facts}) < num,
        "some ranks are threads of one process": len({one.process for one in facts}) < num,
        "GPUs of AMD; MPISTRAT_GPU_ONE_SHOT=on is for those whose memory is not cached": not all(
            one.has_flags for one in facts
        ),
    }
    return next((why for why, is_so in obstacles.items() if is_so), None)


def _why_no_peer_memory(facts: Sequence[Facts]) -> str | None:
    if len({one.host for one in facts}) > 1:
        return "the ranks are on several nodes; use nccl or staged"
    if len(facts) > MAX_RANKS:
        return f"{len(facts)} ranks, and a kernel reduces at most {MAX_RANKS}; use nccl or staged"
    return None


def _why_no_nccl(facts: Sequence[Facts], gpus: int) -> str | None:
    versions = sorted({one.nccl for one in facts})
    if versions[0] == 0:
        ranks = [rank for rank, one in enumerate(facts) if not one.nccl]
        return (
            f"CuPy finds no NCCL on ranks {ranks}; install it (nvidia-nccl-cu13, or the site's"
            " module), or RCCL, which comes with ROCm"
        )
    if len(versions) > 1:
        return f"the ranks have NCCL of versions {versions}; install the same one everywhere"
    if gpus < len(facts):
        return (
            f"{len(facts)} ranks have {gpus} GPUs, and NCCL needs one a rank; start fewer ranks,"
            " or let MPISTRAT_GPU_CARRIER be auto"
        )
    return None
