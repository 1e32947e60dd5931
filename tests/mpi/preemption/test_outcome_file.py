"""A wrong ``MPISTRAT_OUTCOME_FILE`` is one error, in the same words on all ranks."""

from mpistrat.testing.launcher import run_job

PROGRAM = """
import mpistrat
with mpistrat.MirroredStrategy().scope():
    state = mpistrat.train.Checkpoint(weights=mpistrat.Variable([0.0]))
mpistrat.PreemptionHandler(mpistrat.train.CheckpointManager(state, "ckpt", max_to_keep=2))
"""


def test_all_ranks_say_what_is_wrong_with_it(tmp_path) -> None:
    env = {"MPISTRAT_OUTCOME_FILE": "/nonexist/outcome"}
    result = run_job(["-c", PROGRAM], 2, timeout_s=30, env=env, cwd=tmp_path)
    assert result.returncode == 1, result.output
    for rank in result.ranks:
        assert "UsageError: MPISTRAT_OUTCOME_FILE='/nonexist/outcome': expected" in rank.stderr
    assert "MismatchError" not in result.output
