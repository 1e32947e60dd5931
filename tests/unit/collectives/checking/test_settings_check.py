"""At start the ranks compare versions and settings."""

import platform

import numpy as np
import pytest

import mpistrat
from mpistrat.collectives import Communicator
from mpistrat.collectives.checking import settings_check
from mpistrat.collectives.checking.settings_check import Facts, check
from mpistrat.errors import ClusterError
from mpistrat.testing.threads import run_ranks


def test_facts_of_this_process(monkeypatch):
    for name in ("MPISTRAT_BACKEND", "MPISTRAT_FUSION_BYTES"):
        monkeypatch.delenv(name, raising=False)
    versions = settings_check.facts().versions
    assert versions == {
        "python": ".".join(platform.python_version().split(".")[:2]),
        "mpistrat": mpistrat.__version__,
        "numpy": np.__version__,
    }
    monkeypatch.setenv("MPISTRAT_FUSION_BYTES", "1000")
    assert settings_check.facts().versions["MPISTRAT_FUSION_BYTES"] == "1000"


def test_equal_facts_agree_on_any_machines():
    two = [Facts("a", {"numpy": "2"}), Facts("b", {"numpy": "2"})]
    check(two)
    check([])
    with pytest.raises(ClusterError):  # so the versions were looked at
        check([*two, Facts("b", {"numpy": "1"})])


def test_differences_are_listed_by_rank():
    ranks = [
        Facts("a", {"numpy": "2.0", "python": "3.11"}),
        Facts("a", {"numpy": "1.26", "python": "3.11", "MPISTRAT_BACKEND": "mpi"}),
        Facts("b", {"numpy": "2.0", "python": "3.11"}),
    ]
    with pytest.raises(ClusterError) as caught:
        check(ranks)
    assert str(caught.value) == (
        "the ranks of this job do not run the same software or settings:\n"
        "  MPISTRAT_BACKEND: (unset) on ranks [0, 2]; mpi on ranks [1]\n"
        "  numpy: 2.0 on ranks [0, 2]; 1.26 on ranks [1]\n"
        "start all ranks in the same environment"
    )


def test_communicator_refuses_on_every_rank(monkeypatch):
    versions = iter(["1", "2", "1"])
    monkeypatch.setattr(
        settings_check, "facts", lambda _: Facts("host", {"numpy": next(versions)})
    )

    def rank(handle):
        with pytest.raises(ClusterError, match=r"numpy: [12] on ranks"):
            Communicator(handle)

    run_ranks(3, rank)
