"""Comparisons name as slower only what is apart by intervals and by the threshold."""

import pytest

pytest.importorskip("pydantic")

from hypothesis import given
from hypothesis import strategies as st

from helpers.bench.results import collective, point, servers
from mpistrat.bench.report.analysis.comparison import compare
from mpistrat.testing.sets import takes_long


def repeated(time, count=3, **keys):
    return [point(collective(time, **keys), repeat=number) for number in range(count)]


def compared(old, new, threshold=0.05, **keys):
    return compare(repeated(old, **keys), repeated(new, **keys), threshold)


def test_a_time_that_is_apart_is_a_regression():
    found = compared(100.0, 110.0)
    assert [one.ratio for one in found.slower] == pytest.approx([1.1])
    assert (found.faster, found.equal) == ([], 0)
    assert found.is_regression


def test_a_difference_within_the_noise_is_none():
    found = compared(100.0, 110.0, spread=0.06)  # 94 to 106, and 103.4 to 116.6
    assert (found.slower, found.faster, found.equal) == ([], [], 1)
    assert not found.is_regression


def test_a_difference_below_the_threshold_is_none():
    assert compared(100.0, 104.0).equal == 1
    assert compared(100.0, 104.0, threshold=0.03, spread=0.001).is_regression


def test_what_became_faster_is_named_and_no_regression():
    found = compared(110.0, 100.0)
    assert [one.ratio for one in found.faster] == pytest.approx([1 / 1.1])
    assert not found.is_regression


@takes_long()
@given(st.floats(0.1, 1e6), st.floats(1.0, 4.0), st.floats(0.0, 0.3), st.floats(0.0, 1.0))
def test_slower_and_faster_change_places_with_the_files(time, factor, spread, threshold):
    there = compared(time, time * factor, threshold, spread=spread)
    back = compared(time * factor, time, threshold, spread=spread)
    assert (len(there.slower), len(there.faster), there.equal) == (
        len(back.faster),
        len(back.slower),
        back.equal,
    )


def test_the_largest_change_comes_first():
    sizes = {8: 1.2, 16: 3.0, 32: 2.0}
    old = [one for size in sizes for one in repeated(100.0, nbytes=size)]
    new = [one for size, by in sizes.items() for one in repeated(100.0 * by, nbytes=size)]
    found = compare(old, new, 0.05)
    assert [one.new.get("bytes") for one in found.slower] == [16, 32, 8]


@pytest.mark.parametrize(("old", "new"), [(1, 1), (2, 2), (2, 9), (9, 1)])
def test_fewer_than_3_repeats_are_counted_and_not_judged(old, new):
    found = compare(repeated(100.0, old), repeated(300.0, new), 0.05)
    assert (found.slower, found.faster, found.equal, found.unjudged) == ([], [], 0, 1)
    assert not found.is_empty
    assert not found.is_judged


def test_a_few_repeats_have_to_be_apart_by_more_than_they_spread():
    def runs(*times):
        return [point(collective(time, spread=0.0)) for time in times]

    assert not compare(runs(100, 105, 110), runs(120, 125, 130), 0.05).is_regression
    assert compare(runs(100, 105, 110), runs(122, 125, 130), 0.05).is_regression
    many = runs(*range(100, 111, 2)), runs(*range(111, 122, 2))
    assert compare(*many, 0.05).is_regression, "6 runs have a 95 % interval"


@pytest.mark.parametrize("kind", ["peer", "bound"])
def test_what_others_did_is_listed_and_decides_nothing(kind):
    ours = repeated(100.0)
    old, new = (repeated(time, side="memcpy", kind=kind) for time in (100.0, 300.0))
    found = compare(ours + old, ours + new, 0.05)
    assert [one.ratio for one in found.peers] == pytest.approx([3.0])
    assert (found.slower, found.equal, found.is_regression) == ([], 1, False)
    wrong = repeated(100.0, side="memcpy", kind=kind, correct=False)
    assert compare(ours + old, ours + wrong, 0.05).failed == []


def test_the_copy_beside_a_parameter_server_is_a_peer():
    def runs(ours, copy):
        figures = {
            name: {"min_us": time, "median_us": time, "max_us": time}
            for name, time in (("mpistrat", ours), ("memcpy", copy))
        }
        medians = {"mpistrat": 1.0, "memcpy": 1.0}
        return [point(servers(1.0, times=figures, median=medians), repeat=n) for n in range(3)]

    found = compare(runs(100.0, 100.0), runs(200.0, 300.0), 0.05)
    assert [one.new.side for one in found.slower] == ["mpistrat"]
    assert [one.new.side for one in found.peers] == ["memcpy"]


def test_what_one_file_lacks_is_named():
    old = [point(collective(1.0)), point(collective(1.0), ranks=4)]
    new = [point(collective(1.0)), point(collective(1.0, nbytes=1 << 20))]
    found = compare(old, new, 0.05)
    (only_old,), (only_new,) = found.only_old, found.only_new
    assert only_old == "collectives allreduce float32 8 B, shm, 4 ranks on 1 node"
    assert only_new == "collectives allreduce float32 1 MiB, shm, 2 ranks on 1 node"
    assert not found.is_regression


def test_a_run_that_fails_now_is_a_regression():
    lost = point(collective(1.0), status="timeout", message="a\nno answer from rank 1\n")
    found = compare([point(collective(1.0))], [lost], 0.05)
    assert found.is_regression
    assert found.failed == ["collectives, 2 ranks on 1 node: timeout: no answer from rank 1"]
    again = compare([point(collective(1.0))], [lost, point(collective(1.0), repeat=1)], 0.05)
    assert not again.is_regression, "another repeat of it was ok"
    before = compare([lost], [lost, point(collective(1.0))], 0.05)
    assert before.failed == []


def test_an_answer_that_is_wrong_now_is_a_regression():
    found = compare([point(collective(1.0))], [point(collective(0.5, correct=False))], 0.05)
    assert found.is_regression
    assert found.failed == [
        "collectives, 2 ranks on 1 node: the answer of shm allreduce was wrong"
    ]
