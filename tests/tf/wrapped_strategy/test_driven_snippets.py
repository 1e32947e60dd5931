"""Differential snippets where one rank drives TensorFlow's strategy, and with slices of one."""

from pathlib import Path

import pytest

tf = pytest.importorskip("tensorflow")

from helpers.tf.cases import Case, compare  # noqa: E402
from helpers.tf.driven_snippets import check_by_driver, check_driven  # noqa: E402
from helpers.tf.process import four_cpus  # noqa: E402
from helpers.tf.two_processes import snippets  # noqa: E402
from mpistrat.testing.sets import takes_long, with_all  # noqa: E402

four_cpus()

pytestmark = takes_long()
DIFFERENTIAL = Path(__file__).parents[1] / "differential"

NOT_DRIVEN = {
    "test_accumulation_functions",  # of a strategy that is made with one
    "test_b61_what_has_no_files_is_not_sharded_by_file",  # asks how many ranks there are
}
# Only the driving rank can run these for all: a function that calls them, a replica that fails.
BY_DRIVER = {
    "reduce": [
        "test_b32_axes_in_a_graph",
        "test_b33_unequal_lengths_in_a_graph",
        "test_b36_not_in_a_replica",
    ],
    "gather": [
        "test_b42_b47_unequal_lengths_in_a_graph",
        "test_b44_sparse_slices_are_refused_in_a_replica",
        "test_b45_not_in_a_replica",
    ],
    "input": [
        "test_an_iterator_in_a_graph",
        "test_b63_as_input_signature",
        "test_b63_element_spec",
        "test_b67_in_a_graph",
    ],
    "run": ["test_results_of_replicas_that_raise", "test_runs_do_not_nest"],
}
SLICES = [Case(ranks, 1, "Backed") for ranks in ((2, 3) if with_all() else (2,))]
AS_SLICES = ["test_b30_ops_by_member_and_name", "test_b31_b32_axes", "test_b33_unequal_lengths"]


def of(file):
    return snippets(DIFFERENTIAL / f"test_{file}.py")


def driven():
    return [
        (file, name)
        for file in ("reduce", "gather", "input")
        for name in of(file)
        if name not in NOT_DRIVEN and name not in BY_DRIVER[file]
    ]


@pytest.mark.mpi(ranks=2, timeout_s=60)
@pytest.mark.parametrize(("file", "name"), driven())
def test_on_all_ranks(file, name):
    check_driven(of(file)[name])


@pytest.mark.mpi(ranks=2, timeout_s=60)
@pytest.mark.parametrize(
    ("file", "name"), [(file, name) for file, names in BY_DRIVER.items() for name in names]
)
def test_on_the_driving_rank(file, name):
    check_by_driver(of(file)[name])


@pytest.mark.deadline(60)  # as above, and for the same snippets
@pytest.mark.parametrize("layout", SLICES, ids=str)
@pytest.mark.parametrize("name", AS_SLICES)
def test_slices(name, layout):
    compare(layout, of("reduce")[name])
