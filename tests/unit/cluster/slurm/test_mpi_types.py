"""Types of `srun --mpi=`: the list is read, and the best for each MPI library is chosen."""

import pytest

from mpistrat.cluster.slurm.mpi_types import fitting_type, read_types, understood_types

NEW = (
    "MPI plugin types are...\n\tpmix\n\tnone\n\tpmi2\n"
    "specific pmix plugin versions available: pmix_v3,pmix_v4\n"
)
OLD = "srun: MPI types are...\nsrun: none\nsrun: pmi2\n"


def test_the_list_of_types():
    assert read_types(NEW) == ("pmix", "none", "pmi2", "pmix_v3", "pmix_v4")
    assert read_types(OLD) == ("none", "pmi2")
    assert read_types("srun: fatal: Could not establish a configuration source") == ()


@pytest.mark.parametrize(
    ("library", "offered", "fitting"),
    [
        ("MPICH Version:      5.0.2", ("pmix", "pmi2"), "pmi2"),
        ("MPICH Version:      5.0.2", ("none", "pmix"), "pmix"),
        ("Open MPI v5.0.11, package: x", ("pmi2",), ""),
        ("Open MPI v4.1.4, package: x", ("pmi2",), "pmi2"),
        ("MPI VERSION    : CRAY MPICH version 9.0.1.117", ("pmi2", "cray_shasta"), "cray_shasta"),
        ("Another MPI", ("pmi2", "pmix"), "pmix"),
    ],
)
def test_what_fits_a_library(library, offered, fitting):
    assert fitting_type(library, offered) == fitting


def test_a_library_that_is_not_known():
    assert understood_types("Another MPI") == ()
