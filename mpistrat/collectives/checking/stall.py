"""The error of a wait that is over its deadline: it names the ranks that did not come."""

from __future__ import annotations

from mpistrat.collectives.backends.base import LateRequest, Request
from mpistrat.collectives.checking.gate import Gate
from mpistrat.errors import CommunicationTimeoutError
from mpistrat.system.waiting import wait_until

__all__ = ["error"]

_ANSWER_S = 1.0  # how long peers have to say that they wait too


def error(
    gate: Gate, waited_s: float, request: Request | None = None
) -> CommunicationTimeoutError:
    """Return the error of a call that has waited for so long. **Local.**

    The peers are asked first: each that waits in the same call answers within a moment, so that
    what remains is missing. Missing ranks are asked for their Python stacks. If none is missing,
    the request under way may know what it waits for.
    """
    sequence = gate.call_log.sequence
    peers, stacks = gate.health.peers, gate.health.stacks
    peers.say_stalled(sequence)

    def have_all_answered() -> bool:
        peers.listen()
        return not peers.absent(sequence)

    wait_until(have_all_answered, _ANSWER_S, 1e-3)
    missing = tuple(peers.absent(sequence))
    names = gate.names.listed(missing) or "none: all ranks wait, but no data arrives"
    reason = f"ranks that did not come: {names}"
    doing = stacks.ask(missing) if missing and stacks is not None else ""
    if not missing and isinstance(request, LateRequest):
        what_is_late, missing = request.late()
        reason = f"all ranks wait, but {what_is_late}"
    what = gate.call_log.in_words()
    return CommunicationTimeoutError(
        f"{what} on rank {gate.names.here_by(gate.backend.name)} waited"
        f" {waited_s:.1f} s; {reason}; look what these ranks do, or"
        f" raise the limit with MPISTRAT_TIMEOUT or timeout={doing}",
        missing,
    )
