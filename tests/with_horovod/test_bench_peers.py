"""Benchmarks run beside Horovod where it was built for TensorFlow alone."""

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("horovod.tensorflow")

from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import takes_long

CASE = [
    "-m",
    "mpistrat.bench",
    "collectives",
    "--bytes",
    "1KiB",
    "--rounds",
    "2",
    "--seconds",
    "0.1",
]


@takes_long()
@pytest.mark.parametrize("peers", ["horovod", "all"])
def test_collectives_beside_horovod(peers: str, tmp_path: Path) -> None:
    file = tmp_path / "figures.jsonl"
    job = run_job([*CASE, "--peers", peers, "--json", str(file)], 2, timeout_s=55).check()
    records = [json.loads(line) for line in file.read_text().splitlines()]
    assert "horovod" in {one["side"] for one in records}
    assert all(one["correct"] for one in records)
    assert re.search(r"allreduce +float32 +1 KiB +horovod ", job.ranks[0].stdout)
