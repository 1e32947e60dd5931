"""`BackendCases`: base of the conformance classes for backends, which runs bodies on ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import pytest

from mpistrat import built_in_sizes
from mpistrat.collectives.communicator import Communicator
from mpistrat.testing.backends.samples import DTYPES

__all__ = ["BackendCases", "Body", "run_body", "setting"]

Body = Callable[[Communicator], None]


class BackendCases:
    """Tests that run a body on every rank.

    A test may take ``size`` (number of ranks), and ``dtype`` or, where elements are only moved,
    ``moved`` (a name); it runs for each.

    Attributes
    ----------
    sizes
        Numbers of ranks to test.
    dtypes
        Names of the dtypes to reduce.
    moved_dtypes
        Names of the dtypes to move; fewer will do for a backend that knows them by size alone.
    """

    sizes: ClassVar[Sequence[int]] = (1, 2, 3)
    dtypes: ClassVar[Sequence[str]] = DTYPES
    moved_dtypes: ClassVar[Sequence[str]] = DTYPES

    def run(self, size: int, body: Body) -> None:
        """Call `body` with a communicator on each of `size` ranks.

        Where the ranks are threads, this starts them. Where the test itself runs on every rank of
        a job, this makes a communicator of the first `size` ranks, and returns on the others.
        Either way it ends in :func:`run_body`.
        """
        raise NotImplementedError

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Multiply the tests by sizes and dtypes."""
        if "dtype" in metafunc.fixturenames:
            metafunc.parametrize("dtype", self.dtypes)
        if "moved" in metafunc.fixturenames:
            metafunc.parametrize("moved", self.moved_dtypes)
        if "size" in metafunc.fixturenames:
            metafunc.parametrize("size", self.sizes, ids=[f"size{n}" for n in self.sizes])


def run_body(comm: Any, backend: str, body: Body) -> None:
    """Open a communicator, call `body` with it, and close it.

    If the body raises, the other ranks' pending calls end with `PeerLostError`.
    """
    communicator = Communicator(comm, backend)
    try:
        body(communicator)
    except BaseException as error:
        # The other ranks' calls end at once, and close() does not wait for ranks that have left
        # the body.
        communicator.health.break_off(error)
        raise
    finally:
        communicator.close()


@contextlib.contextmanager
def setting(name: str, value: int) -> Iterator[None]:
    """Change a size of `mpistrat.built_in_sizes`; around `run`, so that all ranks have it."""
    before = getattr(built_in_sizes, name)
    setattr(built_in_sizes, name, value)
    try:
        yield
    finally:
        setattr(built_in_sizes, name, before)
