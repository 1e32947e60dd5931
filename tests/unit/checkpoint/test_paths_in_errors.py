"""Errors and lists of what was not restored name each value by its path."""

import time

import pytest

from mpistrat import Variable
from mpistrat.errors import UsageError
from mpistrat.train import Checkpoint


def test_what_was_not_restored_is_named_by_its_path(tmp_path):
    path = Checkpoint(lst=[1, 2], d={"a": {"b": 3.5}}, w=Variable(1.0)).save(tmp_path / "c")
    status = Checkpoint(w=Variable(0.0)).restore(path)
    with pytest.raises(AssertionError, match=r"has not: 'lst/0', 'lst/1', 'd/a/b'; make"):
        status.assert_consumed()


def test_what_cannot_be_saved_is_named_by_its_path(tmp_path):
    with pytest.raises(UsageError, match=r"the number 1 is in a tuple.*\(at 'd/t'\)"):
        Checkpoint(d={"t": (1, 2)}, w=Variable(1.0)).save(tmp_path / "c")


def test_the_counter_of_saves_alone_is_no_match(tmp_path):
    path = Checkpoint(a=Variable(1.0)).save(tmp_path / "c")
    with pytest.raises(AssertionError, match="nothing in it was wanted"):
        Checkpoint(zz=Variable(1.0)).restore(path).assert_nontrivial_match()


def test_names_of_thousands_of_unused_values_take_no_time(tmp_path):
    path = Checkpoint(history=[float(i) for i in range(5000)], w=Variable(1.0)).save(
        tmp_path / "c"
    )
    start = time.monotonic()
    status = Checkpoint(history=[], w=Variable(0.0)).restore(path)
    assert time.monotonic() - start < 2
    with pytest.raises(AssertionError, match=r"'history/0'.*4990 more"):
        status.assert_consumed()
