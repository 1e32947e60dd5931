"""The text of the GPU kernels, as a compiler at run time gets it."""

import re

import numpy as np
import pytest

from helpers.gpu_kernels.arrays import dtype_of
from helpers.gpu_kernels.instances import DTYPES, instances
from helpers.gpu_kernels.program import CHECKS
from mpistrat.collectives.backends.gpu.kernels import source
from mpistrat.errors import UsageError
from mpistrat.tables.reduction_ops import OPS

FILES = sorted(path.stem for path in source.folder().glob("*.cu"))


def test_every_file_is_checked():
    assert sorted(CHECKS) == FILES


@pytest.mark.parametrize("name", FILES)
def test_headers_are_pasted_once(name):
    text = source.text(name)
    assert "#include" not in text  # CuPy's cache does not see what is included
    assert text.count("typedef unsigned long long u64;") == 1
    assert text.count("#define MPISTRAT_KERNEL ") == 1


@pytest.mark.parametrize("name", FILES)
def test_nothing_is_used_that_a_vendor_lacks(name):
    text = source.text(name)
    assert not re.search(r"__shfl|__ballot|warpSize|__syncwarp|cooperative", text)
    assert not re.search(r"\batomicAdd\b", text)  # its order is not the same in every run


def test_all_ops_and_dtypes_have_names():
    text = source.text("slice_reduce")
    for op in OPS:
        assert f"struct {source.op_name(op).removeprefix('mpistrat::')} " in text
    assert len({source.type_name(dtype_of(name)) for name in DTYPES}) == len(DTYPES)


def test_a_dtype_without_a_kernel_is_named():
    with pytest.raises(UsageError, match="no GPU kernel works on dtype datetime64"):
        source.type_name(np.dtype("M8[s]"))


def test_kernels_follow_the_text():
    lines = source.program("cast", [("cast", "float", "double")]).splitlines()
    assert "\n".join(lines[:-1]) == source.text("cast").rstrip("\n")
    assert (
        lines[-1] == "MPISTRAT_INSTANCE(mpistrat_cast_float_double, mpistrat::cast<float, double>)"
    )
    assert source.instance_name("move_pieces") == "mpistrat_move_pieces"


@pytest.mark.parametrize("name", FILES)
def test_kernels_have_names_of_c_each_its_own(name):
    asked = instances(name, are_all=True)
    names = [source.instance_name(*one) for one in asked]
    assert len(set(names)) == len(asked)
    assert all(re.fullmatch(r"[a-z]\w*", one) for one in names)
