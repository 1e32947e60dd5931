"""`StepPlan`: what the user asked for, and the step that it makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mpistrat.bench.harness.session import Session
from mpistrat.bench.models.gradient_set import GradientSet
from mpistrat.bench.sizes import format_bytes, parse_sizes
from mpistrat.bench.training_step.backward import Backward, call_us
from mpistrat.bench.training_step.buckets import make_buckets
from mpistrat.bench.training_step.step import Step
from mpistrat.errors import UsageError

__all__ = ["StepPlan", "parse_bucket_bytes"]


@dataclass(frozen=True)
class StepPlan:
    """What a step computes and reduces.

    Attributes
    ----------
    gradients
        Whose shapes its gradients have.
    bucket_bytes
        Size of a bucket.
    compute_ms
        Time of the simulated backward pass.
    overlap
        Whether steps are also measured that reduce while they compute.
    """

    gradients: GradientSet
    bucket_bytes: int
    compute_ms: float
    overlap: bool

    def make_step(self, session: Session) -> Step:
        """Allocate the gradients, and calibrate the computation. **Collective.**"""
        communicator = session.communicator
        buckets = make_buckets(
            self.gradients, self.bucket_bytes, communicator.rank, communicator.size
        )
        total_calls = self.compute_ms * 1e3 / call_us(communicator)
        return Step(buckets, Backward([n for one in buckets for n in one.sizes], total_calls))

    def title(self, step: Step, session: Session) -> str:
        """Return what is measured as a line."""
        gradients, topology = self.gradients, session.communicator.topology
        rows = f" and rows of {len(gradients.tables)} tables" if gradients.tables else ""
        scale = "" if gradients.scale == 1 else f" at scale {gradients.scale:g}"
        return (
            f"step of {gradients.name}{scale}: {len(gradients.shapes)} gradients,"
            f" {gradients.parameters / 1e6:.2f} M float32{rows}; buckets of"
            f" {format_bytes(self.bucket_bytes)}: {len(step.buckets)}; computation:"
            f" {self.compute_ms:g} ms; ranks: {topology.size}, nodes: {topology.num_nodes}"
        )

    def record(self, step: Step, session: Session) -> Mapping[str, Any]:
        """Return the same for the JSON lines."""
        gradients, topology = self.gradients, session.communicator.topology
        return {
            "case": "step",
            "model": gradients.name,
            "scale": gradients.scale,
            "tensors": len(gradients.shapes),
            "parameters": gradients.parameters,
            "bytes": gradients.nbytes,
            "tables": len(gradients.tables),
            "bucket_bytes": self.bucket_bytes,
            "buckets": len(step.buckets),
            "compute_ms": self.compute_ms,
            "ranks": topology.size,
            "nodes": topology.num_nodes,
        }


def parse_bucket_bytes(text: str) -> int:
    """Return the size of a bucket that an option names.

    Raises
    ------
    UsageError
        It is none, or several, or 0.
    """
    sizes = parse_sizes(text)
    if len(sizes) != 1 or sizes[0] < 1:
        raise UsageError(f"--bucket-bytes {text!r}: expected one size above 0, as in 25MiB")
    return sizes[0]
