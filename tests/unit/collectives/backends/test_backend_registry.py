"""Backends by name: known and unknown ones, ones from elsewhere, and why one cannot be used."""

import sys
import types

import numpy as np
import pytest

from mpistrat.collectives import Communicator, available_backends, register_backend
from mpistrat.collectives.backends import registry
from mpistrat.collectives.backends.threads import ThreadsBackend, ThreadWorld
from mpistrat.errors import (
    ArgumentTypeError,
    BackendError,
    BackendNotFoundError,
    BackendUnavailableError,
    ClusterError,
    CommunicationTimeoutError,
    MismatchError,
    MpistratError,
)
from mpistrat.testing.threads import run_ranks


class Mine(ThreadsBackend):
    name = "mine"


class DataOnly(ThreadsBackend):
    """One that moves data, and brings no control."""

    name = "data only"

    def __init__(self, comm):
        super().__init__(comm)
        del self.control


class Never(ThreadsBackend):
    @classmethod
    def unavailable(cls, comm):
        return "the moon is full"


@pytest.fixture(autouse=True)
def module(monkeypatch):
    """A module of another package, and a registry that forgets afterwards."""
    module = types.ModuleType("a_package.backends")
    module.Mine, module.Never, module.DataOnly = Mine, Never, DataOnly
    monkeypatch.setitem(sys.modules, "a_package.backends", module)
    monkeypatch.setattr(registry, "_BACKENDS", dict(registry._BACKENDS))
    monkeypatch.delenv("MPISTRAT_BACKEND", raising=False)


def test_known_names():
    assert {"mpi", "threads"} <= set(available_backends())
    assert list(available_backends()) == sorted(available_backends())


def test_unknown_name_lists_the_known_ones():
    known = "expected auto, hierarchical, horovod, mpi, shm, threads"
    with pytest.raises(BackendNotFoundError, match=f"'nope' is not known; {known}"):
        Communicator(backend="nope")


@pytest.mark.parametrize("name", [None, 3])
def test_name_is_text(name):
    with pytest.raises(ArgumentTypeError, match="expected a str"):
        Communicator(backend=name)


def test_registered_backend_is_used():
    register_backend("mine", "a_package.backends:Mine")
    assert "mine" in available_backends()
    comm = Communicator(ThreadWorld(1).comms()[0], "mine")
    assert comm.backend.name == "mine"
    assert comm.allreduce(2) == 2
    comm.close()


def test_backend_without_control_of_its_own_is_given_one():
    """It is checked as any other: ranks that call different things are told so."""
    register_backend("data only", "a_package.backends:DataOnly")

    def rank(handle):
        comm = Communicator(handle, "data only")
        assert comm.backend.name == "data only"
        assert not hasattr(comm.backend, "control")
        np.testing.assert_array_equal(comm.allreduce(np.ones(500)), np.full(500, 2.0))
        with pytest.raises(MismatchError, match=r"rank 0: allgather.*\n *rank 1: barrier"):
            comm.allgather([1]) if comm.rank == 0 else comm.barrier()
        comm.close()

    run_ranks(2, rank)


def test_target_needs_module_and_class():
    with pytest.raises(ArgumentTypeError, match="target='a_package': expected 'module:Class'"):
        register_backend("mine", "a_package")


def test_entry_point_of_another_package(monkeypatch):
    monkeypatch.setattr(registry, "_outside", lambda: {"theirs": "a_package.backends:Mine"})
    assert "theirs" in available_backends()
    assert Communicator(backend="theirs").backend.name == "mine"


def test_own_names_go_before_entry_points(monkeypatch):
    monkeypatch.setattr(registry, "_outside", lambda: {"threads": "a_package.backends:Never"})
    assert Communicator(backend="threads").backend.name == "threads"


def test_entry_points_are_looked_up_in_their_group(monkeypatch):
    asked = []

    def entry_points(group):
        asked.append(group)
        return [types.SimpleNamespace(name="theirs", value="a_package.backends:Mine")]

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
    registry._outside.cache_clear()
    try:
        assert "theirs" in available_backends()
        assert asked == ["mpistrat.backends"]
    finally:
        registry._outside.cache_clear()


def test_unavailable_backend_says_why():
    register_backend("never", "a_package.backends:Never")
    with pytest.raises(BackendUnavailableError, match="'never' cannot be used here: the moon is"):
        Communicator(backend="never")


def test_mpi_without_launcher_says_why(monkeypatch):
    monkeypatch.setattr(registry.mpi, "world", lambda: None)
    with pytest.raises(BackendUnavailableError, match=r"no launcher .*; start it with mpirun"):
        Communicator(backend="mpi")


@pytest.mark.parametrize("backend", ["mpi", "threads"])
def test_comm_of_the_wrong_kind_is_named(backend):
    with pytest.raises(BackendUnavailableError, match="comm is a dict; expected"):
        Communicator({}, backend)


@pytest.mark.parametrize("target", ["not_a_module_at_all:X", "a_package.backends:Missing"])
def test_backend_that_cannot_be_loaded(target):
    register_backend("broken", target)
    with pytest.raises(BackendUnavailableError, match="backend 'broken' cannot be loaded: "):
        Communicator(backend="broken")


def test_environment_chooses_where_the_program_does_not(monkeypatch):
    register_backend("mine", "a_package.backends:Mine")
    monkeypatch.setenv("MPISTRAT_BACKEND", "mine")
    assert Communicator().backend.name == "mine"
    assert Communicator(backend="threads").backend.name == "threads"
    monkeypatch.setenv("MPISTRAT_BACKEND", "nope")
    with pytest.raises(BackendNotFoundError, match=r"^MPISTRAT_BACKEND='nope' is not") as caught:
        Communicator()
    assert str(caught.value).endswith("; unset it or fix it")
    assert "threads" not in str(caught.value)  # which no job of processes can use


def test_auto_is_threads_for_threads():
    assert Communicator(ThreadWorld(1).comms()[0]).backend.name == "threads"


def _told(*names):
    """Return what each of some ranks is told that ask for these backends."""

    def rank(handle):
        with pytest.raises(MpistratError) as caught:
            Communicator(handle, backend=names[handle.rank])
        return caught.value

    return run_ranks(len(names), rank, timeout_s=10)


def test_threads_that_ask_for_different_backends_are_told_at_once():
    register_backend("mine", "a_package.backends:Mine")
    for error in _told("threads", "mine", "threads"):
        assert isinstance(error, ClusterError)
        assert "different backends: 'mine' on ranks [1]; 'threads' on ranks [0, 2]" in str(error)


@pytest.mark.parametrize("name", ["mpi", "nope"])
def test_a_backend_that_one_thread_refuses_is_told_to_the_others(name):
    other, refused = _told("threads", name)
    assert isinstance(refused, BackendError)
    assert isinstance(other, MismatchError)
    assert f"rank 1: a call that it refused: {type(refused).__name__}: backend" in str(other)


def test_a_communicator_of_threads_advances_calls_of_others_while_it_is_made():
    def rank(handle):
        with Communicator(handle) as first:
            work = first.iallreduce(np.ones(3))
            if handle.rank == 1:
                work.wait(10)
            with Communicator(handle):
                assert work.wait(10).sum() == 6

    run_ranks(2, rank)


def test_a_thread_that_does_not_come_is_named(monkeypatch):
    monkeypatch.setenv("MPISTRAT_TIMEOUT", "0.3")

    def rank(handle):
        if handle.rank != 1:
            with pytest.raises(CommunicationTimeoutError, match="make it on every") as caught:
                Communicator(handle)
            assert caught.value.missing == (1,)

    run_ranks(3, rank)
