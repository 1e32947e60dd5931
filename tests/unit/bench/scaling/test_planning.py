"""Which runs are planned: ranks and nodes that fit, in random order, without those done."""

import pytest

pytest.importorskip("pydantic")
pytest.importorskip("typer")

from mpistrat.bench.results.point import Point
from mpistrat.bench.scaling import allocation as allocations
from mpistrat.bench.scaling.allocation import Allocation, find_allocation
from mpistrat.bench.scaling.planning import plan
from mpistrat.bench.scaling.suite import Run, Suite
from mpistrat.errors import UsageError


def suite_of(*runs: Run, **others: object) -> Suite:
    return Suite.model_validate({"run": runs or (Run(case="step"),), **others})


def places(suite: Suite, allocation: Allocation) -> list[tuple[int, int]]:
    runs = plan(suite, allocation, [], seed=0)
    return sorted((one.setup.ranks, one.setup.nodes) for one in runs)


def test_all_ranks_on_as_few_nodes_as_hold_them() -> None:
    found = places(suite_of(repeats=1), Allocation(3, 4))
    assert found == [(1, 1), (2, 1), (4, 1), (8, 2), (12, 3)]


def test_of_a_grid_what_has_as_many_ranks_on_each_node() -> None:
    suite = suite_of(repeats=1, ranks=(2, 3, 4), nodes=(1, 2))
    assert places(suite, Allocation(2, 2)) == [(2, 1), (2, 2), (4, 2)]
    assert places(suite, Allocation(2, 4)) == [(2, 1), (2, 2), (3, 1), (4, 1), (4, 2)]


def test_a_run_has_its_own_numbers() -> None:
    run = Run(case="step", ranks=(3,), nodes=(2,), repeats=2, timeout_s=5)
    runs = plan(suite_of(run, ranks=(1,), repeats=9), Allocation(2, 2), [], seed=0)
    assert [(one.setup.ranks, one.setup.nodes, one.timeout_s) for one in runs] == [(3, 2, 5)] * 2
    assert [one.repeat for one in runs] == [0, 1]


def test_a_case_that_means_nothing_on_one_rank() -> None:
    run = Run(case="collectives", least_ranks=2)
    assert places(suite_of(run, repeats=1), Allocation(1, 4)) == [(2, 1), (4, 1)]


def test_order_is_random_within_each_repeat_and_the_same_for_a_seed() -> None:
    suite = suite_of(repeats=3, ranks=tuple(range(1, 21)))
    first, again, other = (plan(suite, Allocation(1, 20), [], seed) for seed in (0, 0, 1))
    assert first == again != other
    assert [one.repeat for one in first] == [0] * 20 + [1] * 20 + [2] * 20
    ranks = [one.setup.ranks for one in first[:20]]
    assert sorted(ranks) == list(range(1, 21)) != ranks


def test_what_is_done_is_left_out_and_counted_by_setup() -> None:
    suite = suite_of(repeats=2, ranks=(1, 2))
    allocation = Allocation(1, 2)
    everything = plan(suite, allocation, [], seed=0)
    done = [Point(setup=one.setup, repeat=one.repeat) for one in everything[:3]]
    assert plan(suite, allocation, done, seed=0) == everything[3:]


def test_the_same_run_twice_is_as_many_repeats() -> None:
    run = Run(case="step", ranks=(2,))
    runs = plan(suite_of(run, run, repeats=2), Allocation(1, 2), [], seed=0)
    assert [one.repeat for one in runs] == [0, 1, 2, 3]


def test_nodes_and_ranks_that_are_not_there() -> None:
    with pytest.raises(UsageError, match="3 nodes: this job has 2"):
        plan(suite_of(nodes=(3,), ranks=(4,)), Allocation(2, 4), [], seed=0)
    with pytest.raises(
        UsageError, match=r"100000 ranks on 2 nodes: a node holds 4; .*--per-node 5"
    ):
        plan(suite_of(ranks=(100_000,)), Allocation(2, 4), [], seed=0)
    with pytest.raises(UsageError, match="the suite has no run here"):
        plan(suite_of(nodes=(2,), ranks=(1,)), Allocation(2, 4), [], seed=0)


def test_ranks_that_do_not_fill_the_nodes_are_left_out() -> None:
    suite = suite_of(repeats=1, nodes=(2,), ranks=(1, 2, 4))
    assert places(suite, Allocation(2, 2)) == [(2, 2), (4, 2)]


def test_a_repeat_that_failed_is_done_again_by_its_number() -> None:
    suite = suite_of(repeats=3, ranks=(1,))
    first, second, third = plan(suite, Allocation(1, 1), [], seed=0)
    done = Point(setup=second.setup, repeat=second.repeat)
    assert plan(suite, Allocation(1, 1), [done], seed=0) == [first, third]


def test_the_order_of_options_does_not_count() -> None:
    options = ({"units": 8, "layers": 2}, {"layers": 2, "units": 8})
    first, second = (suite_of(Run(case="weak", options=one), ranks=(1,)) for one in options)
    done = [
        Point(setup=one.setup, repeat=one.repeat) for one in plan(first, Allocation(1, 1), [], 0)
    ]
    assert plan(second, Allocation(1, 1), done, seed=0) == []


SLURM = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "3", "SLURM_JOB_CPUS_PER_NODE": "64(x2),32"}


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        (SLURM, Allocation(3, 32)),
        (SLURM | {"SLURM_CPUS_PER_TASK": "8"}, Allocation(3, 4)),
        (SLURM | {"SLURM_NTASKS_PER_NODE": "5"}, Allocation(3, 5)),
        (SLURM | {"SLURM_NTASKS_PER_NODE": "0"}, Allocation(3, 32)),
        (SLURM | {"SLURM_NTASKS_PER_NODE": "²"}, Allocation(3, 32)),
    ],
)
def test_what_slurm_says(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], wanted: Allocation
) -> None:
    monkeypatch.setattr(allocations.os, "environ", variables)
    assert find_allocation(None, None) == wanted
    assert find_allocation(1, None) == Allocation(1, wanted.per_node)
    assert find_allocation(None, 2) == Allocation(3, 2)


def test_what_pbs_and_the_machine_say(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("pbs") / "nodes"
    file.write_text("a\na\na\nb\nb\n")
    monkeypatch.setattr(allocations.os, "environ", {"PBS_NODEFILE": str(file)})
    assert find_allocation(None, None) == Allocation(2, 2)
    monkeypatch.setattr(allocations.os, "environ", {})
    monkeypatch.setattr(allocations.os, "sched_getaffinity", lambda pid: {0, 3, 5})
    assert find_allocation(None, None) == Allocation(1, 3)
