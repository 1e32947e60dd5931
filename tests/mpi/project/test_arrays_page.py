"""The programs of docs/arrays.md run as they are written, and go on where they were."""

import re
from pathlib import Path

import numpy as np

from mpistrat.testing.launcher import run_job

PAGE = Path(__file__).parents[3] / "docs" / "arrays.md"
TRAINING, COLLECTIVES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def printed(code: str, ranks: int, folder: Path) -> list[str]:
    """Return the lines that rank 0 prints; no other rank prints any."""
    (folder / "example.py").write_text(code)
    result = run_job(["example.py"], ranks, cwd=folder, timeout_s=60).check()
    assert [one.stdout for one in result.ranks[1:]] == [""] * (ranks - 1)
    return result.ranks[0].stdout.splitlines()


def test_training_is_the_same_on_any_number_of_ranks_and_goes_on(tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("one", "two", "cut")}
    for folder in folders.values():
        folder.mkdir()
    whole = printed(TRAINING, 1, folders["one"])
    losses = [float(line.split()[-1]) for line in whole]
    assert len(losses) == 6
    assert losses[-1] < 1e-3 * losses[0]
    assert printed(TRAINING, 2, folders["two"]) == whole
    first = printed(TRAINING.replace("EPOCHS, BATCH = 6", "EPOCHS, BATCH = 3"), 2, folders["cut"])
    assert first == whole[:3]
    rest = [float(line.split()[-1]) for line in printed(TRAINING, 3, folders["cut"])]
    np.testing.assert_allclose(rest, losses[3:], atol=2e-6)


def test_collectives(tmp_path: Path) -> None:
    assert printed(COLLECTIVES, 3, tmp_path) == [
        "[3.0, 6.0, 9.0, 12.0] 6 ['rank 0', 'rank 1', 'rank 2']"
    ]
