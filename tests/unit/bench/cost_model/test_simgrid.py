"""The formulas of the algorithms agree with SimGrid's simulation of their messages.

SimGrid knows of hosts with a link each, of a given latency and bandwidth, and of nothing else: the
parameters are the platform's, not fitted. 64 to 1,024 ranks, within 5 %; the simulated ranks leave
the barrier before the clock starts up to a message apart. Needs SimGrid's compiler and launcher
for MPI programs (``apt-get install libsimgrid-dev``).
"""

import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("pydantic")

from mpistrat.bench.cost_model.formulas import between_nodes as between
from mpistrat.bench.cost_model.formulas.counts import Counts
from mpistrat.testing.sets import takes_long

pytestmark = pytest.mark.skipif(
    shutil.which("smpicc") is None or shutil.which("smpirun") is None,
    reason="needs SimGrid's smpicc and smpirun (Debian: libsimgrid-dev)",
)

SOURCE = Path(__file__).parent / "simulated" / "algorithms.c"
LINK_LATENCY_S, BYTES_PER_S = 5e-6, 1e9
TOLERANCE = 0.05
SEGMENTS = 16
# Neither the factors of SimGrid's own model of Ethernet, nor TCP's acknowledgements and windows.
PLAIN = (
    "--cfg=network/model:CM02",
    "--cfg=network/crosstraffic:0",
    "--cfg=network/TCP-gamma:1e15",
    "--cfg=smpi/simulate-computation:no",
    "--log=root.thres:critical",
)
PLATFORM = """<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="flat" prefix="n" suffix="" radical="0-{last}" speed="1Gf" bw="1GBps" lat="5us"
           sharing_policy="SPLITDUPLEX"/>
</platform>
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("simgrid")
    program = folder / "algorithms"
    command = ["smpicc", "-O1", "-Wall", "-Werror", str(SOURCE), "-o", str(program)]
    subprocess.run(command, check=True, timeout=60, cwd=folder)
    return program


def simulated_s(program: Path, name: str, ranks: int, nbytes: int) -> float:
    platform, hosts = (program.parent / f"{ranks}.{kind}" for kind in ("xml", "hosts"))
    platform.write_text(PLATFORM.format(last=ranks - 1))
    hosts.write_text("".join(f"n{rank}\n" for rank in range(ranks)))
    where = ["-np", str(ranks), "-platform", str(platform), "-hostfile", str(hosts)]
    command = ["smpirun", *where, *PLAIN, str(program), name, str(nbytes), str(SEGMENTS)]
    run = subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=120, cwd=program.parent
    )
    return float(run.stdout.strip().splitlines()[-1])


def predicted_s(counts: Counts) -> float:
    """Two links are between two hosts: out of the one and into the other."""
    return counts.messages * 2 * LINK_LATENCY_S + counts.wire_bytes / BYTES_PER_S


FORMULAS = {
    "ring": between.ring_allreduce,
    "doubling": between.recursive_doubling,
    "rabenseifner": between.rabenseifner_allreduce,
    "tree": between.binomial_tree,
    "chain": lambda nodes, nbytes: between.chain(nodes, nbytes, nbytes / SEGMENTS),
}


def check(program: Path, name: str, ranks: int, nbytes: int) -> None:
    predicted = predicted_s(FORMULAS[name](ranks, nbytes))
    assert simulated_s(program, name, ranks, nbytes) == pytest.approx(predicted, rel=TOLERANCE)


@pytest.mark.parametrize("nbytes", [64 << 10, 1 << 20, 16 << 20])
@pytest.mark.parametrize("name", ["ring", "doubling", "rabenseifner", "tree"])
def test_64_ranks(program: Path, name: str, nbytes: int) -> None:
    check(program, name, 64, nbytes)


def test_a_chain_of_64_ranks(program: Path) -> None:
    """Of segments that take longer than the latency: SimGrid lets shorter ones share the link."""
    for nbytes in (1 << 20, 16 << 20):
        check(program, "chain", 64, nbytes)


@pytest.mark.parametrize("name", FORMULAS)
def test_256_ranks(program: Path, name: str) -> None:
    check(program, name, 256, 1 << 20)


@takes_long()
@pytest.mark.parametrize("name", ["doubling", "rabenseifner", "tree", "chain"])
def test_1024_ranks(program: Path, name: str) -> None:
    """Without the ring, whose two million messages take SimGrid a minute."""
    check(program, name, 1024, 1 << 20)
