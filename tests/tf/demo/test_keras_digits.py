"""The README's example for TensorFlow is the demo, and runs."""

import re
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import takes_long

ROOT = Path(__file__).parents[3]


def test_the_readme_shows_the_demo():
    shown = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    demo = (ROOT / "mpistrat" / "demo" / "keras_digits.py").read_text()
    # The README leaves out the option that takes Horovod.
    without = re.sub(r"from mpistrat.demo.cross_device_ops .*\n", "", demo)
    without = without.replace("cross_device_ops=chosen()", "")
    assert without != demo
    assert without.split('"""', 2)[2].lstrip() in shown


@takes_long()
@pytest.mark.deadline(200)
def test_ranks_learn_together_and_rank_0_tells():
    env = {"PYTHONPATH": str(ROOT)}  # with scikit-learn
    result = run_job(["-m", "mpistrat.demo.keras_digits"], 2, timeout_s=120, env=env).check()
    first, second = (rank.stdout for rank in result.ranks)
    (accuracy,) = re.findall(r"2 replicas, test accuracy ([\d.]+)%", first)
    assert float(accuracy) > 80
    assert "Epoch 12/12" in first
    assert second == ""
