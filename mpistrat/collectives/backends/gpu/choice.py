"""Choose what carries arrays between GPUs, from where the GPUs of the ranks are.

All ranks choose alike, since all compare the same facts.
"""

from __future__ import annotations

from collections.abc import Sequence

from mpistrat.collectives.backends.gpu.facts import Facts
from mpistrat.errors import BackendUnavailableError

__all__ = ["choose", "choose_rest"]


def choose(facts: Sequence[Facts]) -> list[str]:
    """Return the carriers that may serve these ranks, the best one first.

    NCCL where every rank has a GPU of its own and the same NCCL: it is not made for ranks that
    share one. Mapped memory where all ranks are on one node. The host's memory serves all.
    """
    gpus = {(one.host, one.bus) for one in facts}
    is_one_node = len({one.host for one in facts}) == 1
    no_nccl = _why_no_nccl(facts, len(gpus))
    wanted = facts[0].carrier  # the same on all ranks: settings are compared when they start
    if wanted == "nccl" and no_nccl:
        raise BackendUnavailableError(f"MPISTRAT_GPU_CARRIER=nccl: {no_nccl}")
    if wanted == "peer_memory" and not is_one_node:
        raise BackendUnavailableError(
            "MPISTRAT_GPU_CARRIER=peer_memory: the ranks are on several nodes; use nccl or staged"
        )
    if wanted != "auto":
        return [wanted]
    names = ["nccl"] if len(facts) > 1 and not no_nccl else []
    return [*names, *(["peer_memory"] if is_one_node else []), "staged"]


def _why_no_nccl(facts: Sequence[Facts], gpus: int) -> str | None:
    versions = sorted({one.nccl for one in facts})
    if versions[0] == 0:
        ranks = [rank for rank, one in enumerate(facts) if not one.nccl]
        return f"ranks {ranks} have a CuPy without NCCL; install mpistrat[cuda] or mpistrat[rocm]"
    if len(versions) > 1:
        return f"the ranks have NCCL of versions {versions}; install the same one everywhere"
    if gpus < len(facts):
        return (
            f"{len(facts)} ranks have {gpus} GPUs, and NCCL needs one a rank; start fewer ranks,"
            " or let MPISTRAT_GPU_CARRIER be auto"
        )
    return None


def choose_rest(facts: Sequence[Facts]) -> str:
    """Return the carrier of what NCCL cannot do."""
    return "staged"
