"""Start a Slurm of four nodes for the tests below this folder, or skip them with the reason.

Each process of pytest-xdist has one of its own, so that tests side by side do not wait for each
other's jobs.
"""

from collections.abc import Iterator

import pytest

from helpers.slurm.cluster import SlurmCluster, running_cluster
from helpers.slurm.programs import why_not_here


@pytest.fixture(scope="session")
def slurm_of_session() -> Iterator[SlurmCluster]:
    """Return the Slurm of all tests of this process."""
    reason = why_not_here()
    if reason is not None:
        pytest.skip(reason)
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture
def slurm(
    slurm_of_session: SlurmCluster, request: pytest.FixtureRequest
) -> Iterator[SlurmCluster]:
    """Return a Slurm without jobs; after the test its jobs are cancelled."""
    failed_before = request.session.testsfailed
    yield slurm_of_session
    if request.session.testsfailed > failed_before:
        print(slurm_of_session.logs())  # pytest shows it with the failure
    slurm_of_session.cancel_all()
