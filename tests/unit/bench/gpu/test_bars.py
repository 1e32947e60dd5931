"""The case ``gpu`` without a GPU: its bars, and what it says where CuPy is missing."""

import subprocess
import sys

import pytest

pytest.importorskip("typer")

from mpistrat.bench.gpu import bars
from mpistrat.bench.gpu.device import has_bars
from mpistrat.testing.sets import takes_long

MIB = 1 << 20


def met(found: list[bars.Bar]) -> list[tuple[str, bool]]:
    return [(bar.text, bar.is_met) for bar in found]


def test_bars_of_reductions() -> None:
    row = ("reduce", "4 buffers", 64 * MIB)
    assert met(bars.kernel_bars(row, 0.9, {"cupy": 1.79}, {})) == [
        ("share of copy", True),
        ("x cupy", False),
    ]
    row = ("slice sum", "4 buffers", 64 * MIB)
    assert met(bars.kernel_bars(row, 0.89, {"cupy": 9.0}, {})) == [("share of copy", False)]
    assert bars.kernel_bars(("reduce", "4 buffers", MIB), 0.1, {"cupy": 0.1}, {}) == []


def test_bars_of_lists_are_by_the_hosts_clock() -> None:
    row = ("pack", "161 arrays", 100 * MIB)
    found = bars.kernel_bars(row, 0.8, {"cupy loop": 1.0}, {"cupy loop": 10.0})
    assert met(found) == [("share of copy", True), ("x loop", True)]
    assert bars.kernel_bars(("pack", "5 arrays", MIB), 0.1, {}, {}) == []


def test_bars_of_allreduce() -> None:
    assert met(bars.allreduce_bars(8, 40.0, 0.0, 0.0)) == [("us", True)]
    assert met(bars.allreduce_bars(64 << 10, 40.1, 0.0, 0.0)) == [("us", False)]
    assert bars.allreduce_bars(MIB, 1e6, 0.0, 0.0) == []
    large = bars.allreduce_bars(64 * MIB, 1e6, 0.75, 4.9)
    assert met(large) == [("share of bound", True), ("x staged", False)]
    assert len(bars.allreduce_bars(64 * MIB, 1e6, 0.75, 0.0)) == 1  # staging was not measured


def test_what_bars_say() -> None:
    bar = bars.Bar("us", 41.0, most=40)
    assert str(bar) == "us <= 40 MISSED"
    assert bar.record() == {"bar": "us", "value": 41.0, "most": 40, "met": False}
    assert bars.told([bar, bars.Bar("x", 2, least=1)]) == "us <= 40 MISSED; x >= 1 met"


@pytest.mark.parametrize(
    ("name", "platform", "wanted"),
    [
        ("NVIDIA H200", "cuda", True),
        ("pretended GPU 0", "cuda", False),
        ("pretended GPU 0", "hip", False),
        ("AMD Instinct MI300X", "hip", False),
    ],
)
def test_only_gpus_of_nvidia_have_bars(name: str, platform: str, wanted: bool) -> None:
    assert has_bars({"gpu": name, "platform": platform}) is wanted


@takes_long()
def test_without_cupy_one_line_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['cupy'] = None;"
        "from mpistrat.bench.__main__ import main; sys.argv[1:] = ['gpu']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert "install mpistrat[cuda]" in line
