"""A checkpoint manager, the outcome file, and no handler left behind by a test."""

import pytest

from mpistrat.preemption import handler as handler_module
from mpistrat.preemption import signals
from mpistrat.train import Checkpoint, CheckpointManager


@pytest.fixture(autouse=True)
def outcome(monkeypatch, tmp_path):
    path = tmp_path / "outcome"
    monkeypatch.setenv("MPISTRAT_OUTCOME_FILE", str(path))
    return lambda: path.read_text().strip() if path.exists() else None


@pytest.fixture
def manager(tmp_path):
    state = Checkpoint(step=0)
    return CheckpointManager(state, tmp_path / "checkpoints", max_to_keep=2)


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    """End what a handler that has stopped leaves: a process that then goes on would be ended."""
    made = []

    class Kept(handler_module.Watch):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            made.append(self)

    monkeypatch.setattr(handler_module, "Watch", Kept)
    yield
    for watch in made:
        watch.close()
    for notes in list(signals._active):
        notes.put_back()
