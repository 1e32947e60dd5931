"""The sides of a step: computation alone, and each library in sequence and overlapped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from mpistrat.bench.harness.session import Session
from mpistrat.bench.harness.sides import Label, Side
from mpistrat.bench.peers.mpi import MpiPeer
from mpistrat.bench.peers.mpi_requests import RequestsCarrier
from mpistrat.bench.training_step.carrier import Carrier, CommunicatorCarrier
from mpistrat.bench.training_step.step import Answers, Step

__all__ = ["StepSide", "make_sides"]


@dataclass(frozen=True)
class StepSide:
    """A side, and what it is compared with.

    Attributes
    ----------
    side
        Its label, its call and its check.
    library
        The name of the backend as it was asked for, or of the peer; empty for computation alone.
    is_overlapped
        Whether it reduces while it computes.
    """

    side: Side
    library: str
    is_overlapped: bool = False


def make_sides(step: Step, session: Session, overlap: bool) -> list[StepSide]:
    """Return computation alone, then each library's sides; `overlap`: both of them. **Local.**"""
    alone = Label("compute alone", "bound", "numpy", "none")
    sides = [StepSide(Side(alone, step.backward.compute_all, lambda: True), "")]
    for name, communicator in session.backends.items():
        carrier, backend = CommunicatorCarrier(communicator), communicator.backend.name
        text = name if name == backend else f"{name} ({backend})"
        label = Label(text, "backend", backend, "iallreduce_many")
        sides += _of_library(step, carrier, label, name, overlap)
    for peer in session.peers:
        if isinstance(peer, MpiPeer):
            label = Label(peer.name, "peer", peer.name, "Iallreduce", is_base=True)
            sides += _of_library(step, RequestsCarrier(peer.comm), label, peer.name, overlap)
    return sides


def _of_library(
    step: Step, carrier: Carrier, label: Label, library: str, overlap: bool
) -> list[StepSide]:
    sides = [_side(step, partial(step.in_sequence, carrier), label, library, False)]
    if overlap:
        sides.append(_side(step, partial(step.overlapped, carrier), label, library, True))
    return sides


def _side(
    step: Step, call: Callable[[], Answers], label: Label, library: str, is_overlapped: bool
) -> StepSide:
    text = f"{label.text}, {'overlapped' if is_overlapped else 'in sequence'}"
    named = Label(text, label.kind, label.backend, label.op, label.is_base)
    return StepSide(Side(named, call, partial(step.is_right, call)), library, is_overlapped)
