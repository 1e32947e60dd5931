"""Which checkpoints of a folder an evaluator evaluates."""

import pytest

from mpistrat.checkpoint.evaluation_loop import Evaluations
from mpistrat.errors import UsageError


class Folder:
    """A folder to which something is saved at each look of an evaluator, and then no more."""

    def __init__(self, *paths):
        self.paths, self.seen, self.restored, self.fails = list(paths), None, [], 0

    def look(self):
        self.seen = self.paths.pop(0) if self.paths else self.seen
        return self.seen

    def restore(self, path):
        self.restored.append(path)
        if len(self.restored) <= self.fails:
            raise ZeroDivisionError

    def evaluations(self, most=None):
        return Evaluations(self.look, self.restore, (OSError,), str.upper, most)


def test_each_checkpoint_is_evaluated_once_by_several_calls():
    folder = Folder(None, "a", "a", "b", "b")
    evaluations = folder.evaluations()
    evaluations.follow(lambda _: not folder.paths)
    assert evaluations.results == [("a", "A"), ("b", "B")]
    evaluations.follow(lambda _: True)
    assert folder.restored == ["a", "b"]
    folder.paths = ["c"]
    evaluations.follow(lambda _: True)
    assert evaluations.results == [("a", "A"), ("b", "B"), ("c", "C")]


def test_what_has_failed_is_tried_again():
    folder = Folder("a")
    evaluations, folder.fails = folder.evaluations(), 1
    with pytest.raises(ZeroDivisionError):
        evaluations.follow(lambda _: True)
    evaluations.follow(lambda _: True)
    assert evaluations.results == [("a", "A")]


def test_no_more_than_wanted_in_all():
    folder = Folder("a", "b", "c", "d")
    evaluations = folder.evaluations(2)
    for _ in range(2):
        evaluations.follow(lambda _: True)
    assert folder.restored == ["a", "b"]
    with pytest.raises(UsageError, match="expected a number above 0"):
        folder.evaluations(0)
