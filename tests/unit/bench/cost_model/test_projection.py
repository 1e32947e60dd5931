"""The first to break is that of which the formulas say so, for parameters that are given."""

from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("pydantic")

from mpistrat.bench.cost_model.fitting.fit import MachineFit
from mpistrat.bench.cost_model.fitting.measurements import Measured
from mpistrat.bench.cost_model.fitting.normal_form import NormalForm
from mpistrat.bench.cost_model.fitting.unseen import Growth
from mpistrat.bench.cost_model.formulas.counts import NAMES
from mpistrat.bench.cost_model.formulas.layout import Layout, Node
from mpistrat.bench.cost_model.projection.algorithms import parameter_servers
from mpistrat.bench.cost_model.projection.other_parts import other_parts
from mpistrat.bench.cost_model.projection.series import RANKS, project
from mpistrat.bench.cost_model.projection.served import (
    Saturation,
    ServedCall,
    saturations,
    served_calls,
)
from mpistrat.bench.cost_model.projection.statements import statements
from mpistrat.bench.cost_model.projection.step import StepWork, measured_steps, step_work
from mpistrat.bench.cost_model.projection.thresholds import layouts_up_to
from mpistrat.bench.cost_model.validation import compare_steps
from mpistrat.bench.results.point import Point, Setup

WORK = StepWork("given", 100_000_000, 0.2, 0.05)


def machine(**parameters: float) -> MachineFit:
    """Return a fit without any doubt about its parameters."""
    values = np.array([parameters.get(name, 0.0) for name in NAMES])
    measured = (Measured("allreduce", 8, Layout(2, 2), 1e-6),)
    exact = Growth(1, 0, 1, 0)
    return MachineFit(values, np.tile(values, (9, 1)), np.zeros(9), exact, exact, NAMES, measured)


def said(fit: MachineFit, ranks_per_node: int = 1, **more: dict) -> list[str]:
    """Return all sentences; those of what does not happen begin with "never"."""
    given = more.get("served", {}), more.get("others", {})
    happening, never = statements(fit, WORK, Node(ranks_per_node), *given, has_servers=True)
    return [*happening, *(f"never: {one}" for one in never)]


def find(sentences: list[str], part: str) -> str:
    (found,) = [one for one in sentences if part in one]
    return found


def test_the_latency_of_a_ring_outgrows_its_bandwidth_where_the_formulas_cross() -> None:
    """2 (p - 1) latencies exceed 2 (p - 1)/p of the bytes from p = bytes * G / L on."""
    text = find(said(machine(messages=20e-6, wire_bytes=1e-9)), "latency term")
    assert text.endswith("from 5,000 ranks")  # 100 MB * 1 ns / 20 us
    text = find(said(machine(messages=1e-9, wire_bytes=1e-9)), "latency term")
    assert text.startswith("never: ")
    assert text.endswith("bandwidth term (0.1% is latency at 100,000 ranks)")


def test_the_library_leaves_the_ring_where_blocks_are_below_16_kib() -> None:
    text = find(said(machine(messages=1e-6, wire_bytes=1e-10)), "changes from ring")
    assert "above 6,000 ranks" in text or "above 6,100 ranks" in text  # 100 MB / 16 KiB = 6103
    # 2 n G = 20 ms and 6000 messages of 1 us each way; then 12 + 2 times n G = 140 ms.
    assert "become 140 ms" in text


def test_efficiency_and_what_breaks_first() -> None:
    fit = machine(messages=1e-6, wire_bytes=1e-9)
    sentences = said(fit)
    # 250 ms against 2 (p-1)/p 100 ms: never as long, before recursive doubling takes 14 times 100.
    # Strong: 125 and 100 ms on 2 ranks, which is 55 %; 83 and 133 on 3.
    assert "efficiency below 50% from 6," in find(sentences, "weak scaling")
    assert "from 3 ranks" in find(sentences, "strong scaling")
    first = [one for one in sentences if one.startswith("What breaks first: ")]
    assert first == sentences[:1]


def test_one_server_saturates_where_its_link_is_always_busy() -> None:
    """A step of 250 ms, and 2 * 100 MB at 1 ns a byte: 450 ms, of which the link works 200."""
    sentences = said(machine(wire_bytes=1e-9))
    assert "saturates at 2 workers" in find(sentences, "one parameter server")
    assert "saturate at 18 workers" in find(sentences, "8 parameter servers")


def test_a_server_carries_the_bytes_of_all_workers() -> None:
    assert parameter_servers(10, 100, 4, True).wire_bytes == 2 * 10 * 25
    assert parameter_servers(10, 2, 4, True).wire_bytes == 2 * 10
    assert parameter_servers(10, 3, 1, False).copied == 2 * 10 * 3


def test_series_hold_every_algorithm_and_the_efficiency_of_steps() -> None:
    found = {one.title: one for one in project(machine(wire_bytes=1e-9), WORK, RANKS, Node(8))}
    ring = found["all-reduce of 95.4 MiB: ring"]
    assert list(ring.bands) == list(RANKS[1:])
    assert ring.bands[8].value == 0  # one node, whose memory costs nothing here
    assert ring.bands[512].value == pytest.approx(2 * 63 / 64 * 0.1, rel=1e-3)
    doubling = found["all-reduce of 95.4 MiB: recursive doubling"]
    assert doubling.bands[512].value == pytest.approx(6 * 0.1, rel=1e-3)
    weak, strong = found["step (given): weak scaling"], found["step (given): strong scaling"]
    assert weak.bands[512].value == pytest.approx(0.25 + 2 * 63 / 64 * 0.1, rel=1e-3)
    assert weak.efficiency(1) == strong.efficiency(1) == strong.efficiency(8) == 1
    assert strong.bands[8].value == pytest.approx(0.25 / 8)
    assert strong.efficiency(512) < weak.efficiency(512) < 1


def test_without_a_network_its_measurement_is_asked_for() -> None:
    text = find(said(machine(steps=1e-6)), "network was not measured")
    assert "mpirun -n 2 --host HOST1,HOST2 mpistrat bench collectives" in text


def test_measured_servers_saturate_where_workers_wait_for_them() -> None:
    call = ServedCall("rows", "pull", 2)
    times = {1: 0.010 + 0.040, 2: 0.010 + 0.020, 4: 0.010 + 0.010}
    found = saturations({call: times, ServedCall("rows", "push", 2): {2: 1.0}})
    assert found == {call: Saturation(pytest.approx(0.010), pytest.approx(0.040), 4)}
    assert found[call].workers == pytest.approx(5)
    text = find(said(machine(wire_bytes=1e-9), served=found), "pull (rows) of 2 servers")
    assert "saturates at 5 workers, with a function every 10 ms" in text
    assert saturations({call: {1: 0.4, 2: 0.2}})[call].workers == float("inf")


def test_functions_of_servers_are_read() -> None:
    record = {
        "kind": "rows",
        "name": "pull",
        "ranks": 6,
        "times": {"mpistrat": {"median_us": 5e3}},
    }
    setup = Setup(case="ps", options={"num-ps": "1"}, ranks=6, nodes=1)
    points = [Point(setup=setup, records=(record,), repeat=repeat) for repeat in (0, 1)]
    assert served_calls(points) == {ServedCall("rows", "pull", 1): {4: 0.005}}
    assert served_calls([points[0].model_copy(update={"status": "failed"})]) == {}


def test_parts_that_grow_are_named() -> None:
    form = NormalForm(0.1, 0.002, Fraction(1), 0, 0.01, 8)
    text = find(said(machine(wire_bytes=1e-9), others={"save": form}), "save grows")
    assert "200 s at 100,000 ranks (measured up to 8)" in text


def test_a_step_of_options_replaces_the_measured_or_assumed_one() -> None:
    given = step_work([], nbytes=8, compute_ms=5.0)
    assert (given.nbytes, given.compute_s) == (8, 0.005)
    assert given.title == "8 B of gradients and 5 ms alone, as options say"
    assert step_work([]).title == "assumed: ResNet-50's gradients, 100 ms"


def test_the_cost_of_messages_that_was_not_fitted_is_a_lower_bound() -> None:
    # 100,000 times 8 B at 1 ns, and 17 messages of headers of 64 B.
    text = find(said(machine(messages=1e-9, wire_bytes=1e-9)), "an all-to-all of 8 B a pair takes")
    assert not text.startswith("never: ")
    assert text.endswith(
        "at 100,000 ranks at least 801 us; the cost of further messages could not be fitted"
    )
    # And 99,999 further messages of 1 us.
    text = find(said(machine(sends=1e-6, wire_bytes=1e-9)), "an all-to-all of 8 B a pair takes")
    assert text.startswith("never: ")
    assert text.endswith("(101 ms at 100,000 ranks)")


def test_steps_in_sequence_are_predicted_from_their_computation() -> None:
    def record(overlapped: float | None, time_us: float) -> dict:
        return {
            "case": "step",
            "kind": "backend",
            "model": "resnet50",
            "bytes": 1_000_000,
            "ranks": 2,
            "nodes": 2,
            "overlap": overlapped is not None,
            "overlapped": overlapped,
            "compute_us": {"median_us": 3000.0},
            "time_us": {"median_us": time_us},
        }

    records = (record(None, 4000.0), record(0.5, 3500.0))
    points = [Point(setup=Setup(case="step", ranks=2, nodes=2), records=records)]
    (found,) = compare_steps(machine(wire_bytes=1e-9), measured_steps(points))
    assert found.what == "measured step of resnet50, in sequence, 2 ranks on 2 nodes"
    assert found.predicted == pytest.approx(0.003 + 0.001, rel=1e-3)
    assert found.error == pytest.approx(0, abs=1e-3)
    assert step_work(points).hidden == 0.5


def test_other_parts_are_functions_of_the_ranks() -> None:
    points = [
        Point(
            setup=Setup(case="io", ranks=ranks, nodes=1),
            records=(
                {"op": "save", "bytes": 8 << 20, "time_us": {"median": 1e6 + 5e5 * ranks}},
                {"op": "restore", "bytes": 8 << 20, "time_us": {"median": 2e6}},
                {"op": "save", "bytes": 8 << 20, "kind": "peer", "time_us": {"median": 1.0}},
            ),
        )
        for ranks in (1, 2, 4, 8)
    ]
    found = other_parts(points)
    assert found.keys() == {"checkpoint save of 8 MiB", "checkpoint restore of 8 MiB"}
    assert str(found["checkpoint save of 8 MiB"]) == "1 + 0.5 p"
    assert not found["checkpoint restore of 8 MiB"].grows


@pytest.mark.parametrize("ranks_per_node", [1, 3, 64, 60_000])
def test_the_last_layout_has_the_most_full_nodes(ranks_per_node: int) -> None:
    *_, last = layouts_up_to(Node(ranks_per_node))
    assert last.nodes == max(100_000 // ranks_per_node, 2)
    assert last.ranks == last.nodes * ranks_per_node
