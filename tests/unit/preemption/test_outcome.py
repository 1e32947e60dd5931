"""One word for the job's script: written as a whole, or refused before the work begins."""

import os
import re

import pytest

from mpistrat.errors import UsageError
from mpistrat.preemption import outcome


@pytest.fixture
def path(monkeypatch, tmp_path):
    monkeypatch.setenv("MPISTRAT_OUTCOME_FILE", str(tmp_path / "outcome"))
    return tmp_path / "outcome"


def test_the_last_word_stays(path):
    outcome.check()
    assert not path.exists()
    assert outcome.leave(outcome.REQUEUE)
    assert path.read_text() == "REQUEUE\n"
    assert outcome.leave(outcome.DONE)
    assert path.read_text() == "DONE\n"
    assert os.listdir(path.parent) == ["outcome"]


def test_without_the_variable_nothing_is_written(monkeypatch, tmp_path):
    monkeypatch.delenv("MPISTRAT_OUTCOME_FILE", raising=False)
    monkeypatch.chdir(tmp_path)
    outcome.check()
    assert outcome.leave(outcome.DONE)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("wrong", ["missing/outcome", "."])
def test_a_file_that_cannot_be_written_is_refused_at_once(monkeypatch, tmp_path, wrong):
    monkeypatch.setenv("MPISTRAT_OUTCOME_FILE", str(tmp_path / wrong))
    with pytest.raises(UsageError, match=re.escape("expected a file in a folder that exists")):
        outcome.check()


def test_one_that_cannot_be_written_any_more_is_no_error(path, caplog):
    path.mkdir()
    assert not outcome.leave(outcome.REQUEUE)
    assert f"REQUEUE could not be written to {path}: [Errno" in caplog.text
    assert "do by hand what it asks for" in caplog.text
