"""Locks on files: one holder at a time, and no wait without an end."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from mpistrat.system.files.file_locks import try_to_lock

NAP_S = 0.001


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "file"
    file.touch()
    return file


def test_another_holder_is_waited_for_in_vain(file):
    with file.open() as first, file.open() as second:
        assert try_to_lock(first, 10, NAP_S)
        assert try_to_lock(first, 10, NAP_S)  # it has it already
        assert not try_to_lock(second, 0.01, NAP_S)
        assert not try_to_lock(second, 0, NAP_S)
    with file.open() as third:
        assert try_to_lock(third, 0, NAP_S)


def test_whoever_waits_gets_it_when_it_is_given_back(file):
    with ThreadPoolExecutor(1) as pool, file.open() as second:
        with file.open() as first:
            assert try_to_lock(first, 10, NAP_S)
            waiting = pool.submit(try_to_lock, second, 10, NAP_S)
        assert waiting.result(20)


def test_a_folder_can_be_locked(tmp_path):
    first, second = (os.open(tmp_path, os.O_RDONLY) for _ in range(2))
    try:
        assert try_to_lock(first, 0, NAP_S)
        assert not try_to_lock(second, 0, NAP_S)
    finally:
        os.close(first)
        os.close(second)


@pytest.mark.skipif(not hasattr(os, "O_PATH"), reason="needs a descriptor that has no locks")
def test_without_locks_it_raises_at_once(file):
    handle = os.open(file, os.O_PATH)
    try:
        with pytest.raises(OSError, match="Bad file descriptor"):
            try_to_lock(handle, 10, NAP_S)
    finally:
        os.close(handle)
