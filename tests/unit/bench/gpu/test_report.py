"""The case ``gpu`` prints and writes ratios, shares and bars of given times."""

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("rich")

from mpistrat.bench.gpu.allreduce import AllreduceRow
from mpistrat.bench.gpu.comparison import Side
from mpistrat.bench.gpu.kernels import KernelRow
from mpistrat.bench.gpu.report import Report
from mpistrat.bench.harness.expected_results import Task
from mpistrat.bench.harness.row import Heading, Row
from mpistrat.bench.harness.sides import Label
from mpistrat.bench.harness.timing import Timing

MIB = 1 << 20
H200 = {"gpu": "NVIDIA H200", "platform": "cuda"}
PRETENDED = {"gpu": "pretended GPU 0", "platform": "hip"}


def times(*rounds_us: float) -> Timing:
    return Timing(rounds_us)


def reduce_row(wrong: list[str] | None = None) -> KernelRow:
    """5 × 64 MiB in 100 us; CuPy takes 200 us, and a copy 80 us."""
    sides = [
        Side("mpistrat", "mpistrat", str),
        Side("cupy", "cupy", str),
        Side("copy", "bound", str),
    ]
    device = [times(90, 100, 110), times(180, 200, 220), times(72, 80, 88)]
    host = [times(100, 100, 100), times(300, 300, 300), times(90, 90, 90)]
    heading = ("reduce", "4 buffers", "float32", 64 * MIB, 5 * 64 * MIB)
    return KernelRow(*heading, sides, device, host, [True] * 3, {"torch": "old"}, wrong or [])


def allreduce_row(*, is_shared: bool = True) -> AllreduceRow:
    """Two ranks: chosen in 400 us, staged in 4000 us, bounded by 200 us."""
    task = Task("allreduce", np.dtype(np.float32), "sum", 64 * MIB, 0, 2)
    labels = [
        Label("auto", "backend", "auto", "allreduce"),
        Label("staged", "backend", "staged", "allreduce", is_base=True),
        Label("copy of all ranks' bytes", "bound", "copy", "allreduce", is_base=True),
    ]
    timings = [times(400, 400), times(4000, 4000), times(200, 200)]
    return AllreduceRow(Row(Heading("gpu", task), 1, labels, timings, [True] * 3), is_shared)


def test_figures_of_a_kernel() -> None:
    row = reduce_row()
    assert row.gbps(0) == pytest.approx(5 * 64 * MIB / 100e-6 / 1e9)
    assert row.share(0) == pytest.approx(0.8)
    assert row.share(2) == 1
    device, calls = row.speedups()
    assert device == {"cupy": pytest.approx(2), "copy": pytest.approx(0.8)}
    assert calls == {"cupy": pytest.approx(3), "copy": pytest.approx(0.9)}
    ours, cupy, _ = row.records(has_bars=True)
    assert [bar["met"] for bar in ours["bars"]] == [False, True]
    assert (cupy["bars"], cupy["speedup_over"]) == ([], {})
    assert ours["left_out"] == {"torch": "old"}


def test_bars_are_printed_and_counted_on_a_gpu_of_nvidia(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "figures.jsonl"
    report = Report(H200, 0, file)
    report.kernels([reduce_row()])
    report.allreduce([allreduce_row()])
    assert report.conclude()
    said = capsys.readouterr().out
    assert "share of copy >= 0.9 MISSED; x cupy >= 1.8 met" in said
    assert "share of bound >= 0.75 MISSED; x staged >= 5 met" in said
    assert "reduce, 4 buffers: torch left out, old" in said
    assert "Bars of an H100 or H200: 2 met, 2 missed." in said
    records = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(records) == 6
    assert sum(len(one["bars"]) for one in records) == 4
    assert {one["gpu"] for one in records} == {"NVIDIA H200"}


def test_a_pretended_gpu_is_held_against_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "figures.jsonl"
    report = Report(PRETENDED, 0, file)
    report.kernels([reduce_row()])
    report.allreduce([allreduce_row()])
    assert report.conclude()
    said = capsys.readouterr().out
    assert "the times mean nothing" in said
    assert "MISSED" not in said
    assert all(not json.loads(line)["bars"] for line in file.read_text().splitlines())


def test_a_wrong_answer_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(H200, 0, None)
    report.kernels([reduce_row(wrong=["mpistrat"])])
    assert not report.conclude()
    said = capsys.readouterr().out
    assert "mpistrat WRONG" in said
    assert "reduce, 4 buffers: mpistrat is wrong" in said


def test_other_ranks_print_and_write_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "figures.jsonl"
    report = Report(H200, 1, file)
    report.allreduce([allreduce_row()])
    assert report.conclude()
    assert capsys.readouterr().out == ""
    assert not file.exists()


def test_ranks_with_a_gpu_each_have_no_bound() -> None:
    shared, apart = allreduce_row(), allreduce_row(is_shared=False)
    assert (shared.share(0), apart.share(0)) == (0.5, None)
    assert apart.bars(0) == []
    assert apart.records(has_bars=True)[0]["share_of_bound"] is None
