"""The checks of files judge recorded facts."""

from pathlib import Path

import pytest

from helpers.doctor.jobs import faults, has_fault, job, judged
from mpistrat.doctor.check import Status
from mpistrat.doctor.checks.files import caches, environment, shared_memory, temporary_folder
from mpistrat.doctor.checks.files.caches import Cache
from mpistrat.doctor.checks.files.environment import Environment
from mpistrat.doctor.checks.files.shared_memory import Space
from mpistrat.doctor.checks.files.temporary_folder import Folder
from mpistrat.doctor.files.file_systems import mount_type
from mpistrat.doctor.here import Here

GIB = 1 << 30
MOUNTS = r"""
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:25 / /scratch rw shared:1 - lustre mds@tcp:/scratch rw
31 22 0:26 / /scratch/a\040b rw - tmpfs tmpfs rw
32 22 0:27 / /scratch rw - nfs4 server:/x rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/x", "ext4"),
        ("/scratch/y", "nfs4"),
        ("/scratch/a b/c", "tmpfs"),
        ("/scratchy", "ext4"),
    ],
)
def test_the_deepest_and_last_mount_counts(path, kind):
    assert mount_type(path, MOUNTS.strip()) == kind


def test_a_user_without_a_home_folder(monkeypatch):
    """As in a container that runs as a number that it does not know."""

    def unknown(_):
        raise RuntimeError("Could not determine home directory.")

    for name in ("MPISTRAT_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", classmethod(unknown))
    found = caches.CHECK.measure(Here({"CUPY_CACHE_DIR": ""}))  # as if that were not set
    assert [cache.error for cache in found] == ["this user has no home folder"]
    verdict = judged(caches.CHECK, [found], job(["n0"]))
    assert has_fault(verdict, Status.FAILURE, "no home folder", "export MPISTRAT_CACHE=")


@pytest.mark.parametrize(
    ("free", "ranks", "is_well"), [(GIB, 2, True), (60 << 20, 1, False), (90 << 20, 4, False)]
)
def test_shared_memory(free, ranks, is_well):
    facts = [Space(2 * GIB, free)] * ranks
    verdict = judged(shared_memory.CHECK, facts, job(["n0"] * ranks))
    assert (faults(verdict) == []) == is_well
    if not is_well:
        assert has_fault(verdict, Status.FAILURE, "/dev/shm of n0", f"{free >> 20} MiB free")


LONG = "/" + "x" * 80


@pytest.mark.parametrize(
    ("folder", "status", "word"),
    [
        (Folder(LONG, "TMPDIR"), Status.FAILURE, "81 characters"),
        (Folder("/gone", "TMPDIR", "No such file"), Status.FAILURE, "No such file"),
        (Folder("/tmp", "", "", "ext4", 1 << 20), Status.WARNING, "/tmp has 1 MiB free"),
    ],
)
def test_temporary_folders(folder, status, word):
    well = Folder("/tmp", "", "", "ext4")
    verdict = judged(temporary_folder.CHECK, [well, folder], job())
    assert has_fault(verdict, status, word, "rank 1 on n0")
    assert faults(judged(temporary_folder.CHECK, [well, well], job())) == []
    in_memory = judged(temporary_folder.CHECK, [Folder("/tmp", "", "", "tmpfs")], job(["n0"]))
    assert "in memory" in in_memory.value


def test_a_slow_environment():
    slow = Environment("/project/env", "lustre", 12.0)
    verdict = judged(environment.CHECK, {0: slow}, job())
    assert has_fault(verdict, Status.WARNING, "lustre", "12.0 s")
    shared = {rank: Environment("/project/env", "gpfs", 0.2) for rank in range(8)}
    many = job([f"n{i}" for i in range(8)])
    assert has_fault(judged(environment.CHECK, shared, many), Status.WARNING, "gpfs")
    assert faults(judged(environment.CHECK, {0: shared[0]}, job())) == []
    local = {rank: Environment("/env", "ext4", 0.2) for rank in range(8)}
    assert faults(judged(environment.CHECK, local, many)) == []


def test_a_module_that_is_not_there():
    failed = Environment("/env", "ext4", 0.2, ("import torch: ModuleNotFoundError: no",))
    assert has_fault(judged(environment.CHECK, {0: failed}, job()), Status.FAILURE, "import torch")


def test_caches():
    own = Cache("cache folder", "/home/me/.cache/mpistrat", "", "nfs4")
    assert faults(judged(caches.CHECK, [(own,)] * 2, job())) == []
    closed = Cache("CUPY_CACHE_DIR", "/home/me/.cupy", "Read-only file system", "nfs4")
    verdict = judged(caches.CHECK, [(own,), (own, closed)], job())
    assert has_fault(verdict, Status.FAILURE, "CUPY_CACHE_DIR=/home/me/.cupy", "rank 1 on n0")
    assert verdict.problems[0].command.startswith("export CUPY_CACHE_DIR=")
    many = job([f"n{i}" for i in range(64)])
    verdict = judged(caches.CHECK, [(own,)] * 64, many)
    assert has_fault(verdict, Status.WARNING, "64 ranks", "export MPISTRAT_CACHE=")
