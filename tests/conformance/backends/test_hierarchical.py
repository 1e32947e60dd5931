"""Shared memory and rings of messages: jobs of three and four ranks on pretended nodes of two."""

import contextlib

import pytest

from helpers.pretend.nodes import pretended_nodes
from mpistrat.testing.backends.cases import setting
from mpistrat.testing.backends.conformance import BackendConformance, job_communicator, run_body
from mpistrat.testing.backends.samples import DTYPES_BY_SIZE
from mpistrat.testing.sets import takes_long, with_all

_SOME = ("bool", "int8", "float16", "bfloat16", "float32", "complex128")
# Messages carry bytes: by which algorithm does not depend on the dtype, but elements may be cut.
_MOVED = DTYPES_BY_SIZE if with_all() else ("bool", "complex128")


class _OnNodesOfTwo(BackendConformance):
    moved_dtypes = DTYPES_BY_SIZE

    def run(self, size, body):
        with pretended_nodes(2), job_communicator(size) as comm:
            if comm is not None:
                run_body(comm, "hierarchical", body)


@pytest.mark.mpi(ranks=3)
class TestHierarchical(_OnNodesOfTwo):
    """Nodes of two and one."""

    sizes = (3,)
    dtypes = ("bool", "int64", "bfloat16", "float32", "complex128")
    moved_dtypes = _MOVED


@takes_long()
@pytest.mark.mpi(ranks=4 if with_all() else 3)
class TestHierarchicalWithAllDtypes(_OnNodesOfTwo):
    sizes = (3, 4) if with_all() else (3,)


@takes_long()
@pytest.mark.mpi(ranks=4)
class TestRings(_OnNodesOfTwo):
    """The same with rings for all but the least arrays."""

    sizes = (4,)
    dtypes = _SOME
    moved_dtypes = _MOVED

    def run(self, size, body):
        sizes = {"RING_BYTES": 32, "RING_MOST_BYTES": 2048, "SHORT_BYTES": 0}
        with contextlib.ExitStack() as stack:
            for name, value in sizes.items():
                stack.enter_context(setting(name, value))
            super().run(size, body)


@takes_long()
@pytest.mark.mpi(ranks=3)
class TestNodesOfOneRank(BackendConformance):
    """No shared memory at all, and rings for all but the least arrays."""

    sizes = (3,)
    dtypes = _SOME
    moved_dtypes = _MOVED

    def run(self, size, body):
        with pretended_nodes(1), setting("RING_BYTES", 32), job_communicator(size) as comm:
            if comm is not None:
                run_body(comm, "hierarchical", body)
