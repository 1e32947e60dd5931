"""What a restore says of what a checkpoint has and the program has not, and the reverse."""

import logging

import numpy as np
import pytest

from mpistrat import Variable
from mpistrat.errors import CheckpointMismatchError, CheckpointNotFoundError, UsageError
from mpistrat.train import Checkpoint


def same(actual, expected):
    np.testing.assert_array_equal(np.asarray(actual), np.asarray(expected), strict=True)


def test_status_of_less_and_more(tmp_path):
    a, b = Variable(1.0), Variable(2.0)
    both = Checkpoint(a=a, b=b).write(tmp_path / "both")
    one = Checkpoint(a=a).write(tmp_path / "one")
    more = Checkpoint(a=a).read(both)
    assert more.assert_existing_objects_matched() is more
    assert more.assert_nontrivial_match() is more
    with pytest.raises(CheckpointMismatchError, match="holds what the program has not: 'b'"):
        more.assert_consumed()
    less = Checkpoint(a=a, b=b).read(one)
    assert less.assert_nontrivial_match() is less
    assert less.expect_partial() is less
    for name in ("assert_consumed", "assert_existing_objects_matched"):
        with pytest.raises(AssertionError, match="does not hold: 'b'"):
            getattr(less, name)()
    with pytest.raises(AssertionError, match="nothing in it was wanted"):
        Checkpoint(c=a).read(both).assert_nontrivial_match()


def test_what_was_not_used_is_told_unless_asked(tmp_path, caplog):
    path = Checkpoint(a=Variable(1.0), b=Variable(1.0)).write(tmp_path / "one")
    with caplog.at_level(logging.WARNING):
        Checkpoint(a=Variable(1.0)).read(path).expect_partial()
        assert not caplog.text
        Checkpoint(a=Variable(1.0)).read(path)
    assert "not restored: 'b'" in caplog.text


def test_none_restores_nothing():
    variable = Variable(1.0)
    status = Checkpoint(v=variable).restore(None).expect_partial()
    same(variable, 1.0)
    with pytest.raises(AssertionError, match="None"):
        status.assert_consumed()


def test_another_kind_of_thing_is_not_restored(tmp_path):
    path = Checkpoint(a=Variable(1.0), b=3).write(tmp_path / "one")
    status = Checkpoint(a=3, b=Variable(1.0)).read(path)
    with pytest.raises(AssertionError, match="'a', 'b'"):
        status.assert_existing_objects_matched()


@pytest.mark.parametrize("other", [np.zeros(3), np.zeros((2, 1)), np.zeros(2, np.float32)])
def test_other_shape_or_dtype(tmp_path, other):
    path = Checkpoint(a=Variable(1.0), v=Variable([1.0, 2.0])).write(tmp_path / "one")
    a, v = Variable(5.0), Variable(other)
    with pytest.raises(UsageError, match=r"'v' has shape .* the checkpoint has shape \(2,\)"):
        Checkpoint(a=a, v=v).read(path)
    same(a, 5.0)


def test_no_checkpoint(tmp_path):
    for path in (tmp_path, tmp_path / "none", __file__):
        with pytest.raises(CheckpointNotFoundError, match="no complete checkpoint"):
            Checkpoint(v=Variable(1.0)).restore(path)
    with pytest.raises(FileNotFoundError):
        Checkpoint(v=Variable(1.0)).restore(tmp_path)
