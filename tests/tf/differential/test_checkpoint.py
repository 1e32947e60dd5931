"""The same checkpoint calls under tf.train and under mpistrat.train, outcomes compared.

What is otherwise: ``read`` does not miss the counter of a file that ``save`` wrote; and a restored
counter alone is no match of a program and a checkpoint, as it is for TensorFlow, where
``assert_nontrivial_match`` passes for any checkpoint of ``save``.
"""

import os

import pytest

tf = pytest.importorskip("tensorflow")

import mpistrat  # noqa: E402 - TensorFlow may be missing
from mpistrat import train  # noqa: E402
from mpistrat.testing.sets import takes_long  # noqa: E402

SIDES = [(tf.Variable, tf.train), (mpistrat.Variable, train)]


def outcome(call, folder):
    """Return what a call gives, or the built-in class of its error."""
    try:
        result = call()
    except (AssertionError, ValueError) as error:
        return AssertionError if isinstance(error, AssertionError) else ValueError
    if isinstance(result, (str, list)):
        paths = [result] if isinstance(result, str) else result
        return [os.path.relpath(path, folder) for path in paths]
    return None if result is None else "status"


def outcomes(variable, module, folder):
    def made(**values):
        return module.Checkpoint(**{name: variable(value) for name, value in values.items()})

    both = made(a=[1.0, 2.0], b=3.0)
    saved, written = both.save(f"{folder}/ckpt"), both.write(f"{folder}/w")
    manager = module.CheckpointManager(both, f"{folder}/m", max_to_keep=2)
    zeros = {"a": [0.0, 0.0], "b": 0.0}
    calls = [
        lambda: saved,
        lambda: written,
        lambda: made(a=[0.0, 0.0]).read(saved).assert_consumed(),
        lambda: made(a=[0.0, 0.0]).read(saved).assert_existing_objects_matched(),
        lambda: made(**zeros).restore(saved).assert_consumed(),
        lambda: made(**zeros).restore(written).assert_consumed(),
        lambda: made(**zeros, x=0.0).restore(saved).assert_existing_objects_matched(),
        lambda: made(z=0.0).read(saved).assert_nontrivial_match(),
        lambda: made(a=[0.0, 0.0], z=0.0).restore(saved).assert_nontrivial_match(),
        lambda: made(a=[0.0, 0.0, 0.0]).restore(saved).expect_partial(),
        lambda: both.restore(None).expect_partial(),
        lambda: both.restore(None).assert_consumed(),
        lambda: module.Checkpoint(a="text"),
        lambda: module.CheckpointManager(both, folder, max_to_keep=0),
        lambda: module.latest_checkpoint(folder),
        lambda: module.latest_checkpoint(f"{folder}/none"),
        manager.restore_or_initialize,
        manager.save,
        manager.save,
        lambda: manager.save(checkpoint_number=99),
        lambda: manager.checkpoints,
        lambda: manager.latest_checkpoint,
        lambda: module.latest_checkpoint(f"{folder}/m"),
        lambda: module.CheckpointManager(both, f"{folder}/m", max_to_keep=2).checkpoints,
        manager.restore_or_initialize,
    ]
    return [outcome(call, folder) for call in calls] + [int(both.save_counter)]


@takes_long()
def test_the_same_calls(tmp_path):
    for index in range(2):
        (tmp_path / str(index)).mkdir()
    want, found = (outcomes(*side, str(tmp_path / str(i))) for i, side in enumerate(SIDES))
    assert found == want


@takes_long()
def test_a_counter_alone_is_no_match(tmp_path):
    found = []
    for index, (variable, module) in enumerate(SIDES):
        saved = module.Checkpoint(a=variable(1.0)).save(f"{tmp_path}/{index}/ckpt")
        other = module.Checkpoint(z=variable(0.0))
        found.append(outcome(lambda: other.restore(saved).assert_nontrivial_match(), tmp_path))  # noqa: B023
    assert found == ["status", AssertionError]
