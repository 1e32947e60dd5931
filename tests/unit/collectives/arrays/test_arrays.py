"""Taking arrays in, and where results go."""

import os
from types import SimpleNamespace

import numpy as np
import pytest

from mpistrat.collectives.arrays import conversion, gpu_devices
from mpistrat.collectives.arrays.conversion import are_alike, as_array, check_axis, cut, flat
from mpistrat.collectives.arrays.results import check_out, deliver, landing
from mpistrat.collectives.operations.axis_rows import from_rows, row_counts, row_signature, to_rows
from mpistrat.collectives.operations.root_check import check_root
from mpistrat.errors import ArgumentTypeError, UsageError
from mpistrat.system.kernels import kernels, why_no_kernels
from mpistrat.tables.even_cut import even_lengths


def test_arrays_are_taken_as_they_are():
    for array in (np.zeros(3), np.zeros((2, 3)).T, np.zeros((), "?"), np.zeros(0, "c16")):
        assert as_array(array) is array


@pytest.mark.parametrize(
    ("value", "dtype", "shape"),
    [
        (1, "int64", ()),
        (1.0, "float64", ()),
        (True, "bool", ()),
        (1j, "complex128", ()),
        (np.float32(1), "float32", ()),
        ([], "float64", (0,)),
        ([[1, 2, 3]], "int64", (1, 3)),
        (range(4), "int64", (4,)),
    ],
)
def test_values_become_arrays(value, dtype, shape):
    array = as_array(value)
    assert type(array) is np.ndarray
    assert (array.dtype, array.shape) == (np.dtype(dtype), shape)


PLAIN = np.zeros((2, 3), "f4")


@pytest.mark.parametrize(
    ("values", "answer"),
    [
        ([], False),
        ([PLAIN], True),
        ([PLAIN, PLAIN[1:], np.zeros((), "f4"), np.zeros(0, "f4")], True),
        ([PLAIN, PLAIN.T], False),
        ([PLAIN[:, :2]], False),
        ([PLAIN, PLAIN.astype("f8")], False),
        ([PLAIN, PLAIN.astype(">f4")], False),
        ([PLAIN.view(np.matrix)], False),
        ([np.zeros(9, "u1")[1:].view("f4")], False),
        ([PLAIN, 1.0], False),
        ([PLAIN, None], False),
        ([np.zeros(2, "l"), np.zeros(2, "q")], False),
    ],
)
@pytest.mark.skipif(why_no_kernels() is not None, reason="without kernels nothing gains from it")
def test_what_is_alike(values, answer):
    assert are_alike(values) is answer


@pytest.mark.parametrize("has_kernels", [True, False])
def test_parts_are_views_one_after_the_other(has_kernels, monkeypatch):
    if not has_kernels:
        monkeypatch.setattr(conversion, "why_no_kernels", lambda: "it is said that there are none")
    total = np.arange(12.0)
    like = [np.zeros((2, 2)), np.zeros(0), np.zeros(()), np.zeros((1, 7, 1))[:, ::-1]]
    parts = cut(total, like)
    assert [part.shape for part in parts] == [one.shape for one in like]
    assert np.array_equal(np.concatenate([part.ravel() for part in parts]), total)
    for part in parts:
        assert part.base is total
        assert part.flags.carray
    parts[3][...] = -1
    assert (total[5:] == -1).all()
    total.flags.writeable = False
    assert not any(part.flags.writeable for part in cut(total, like))


@pytest.mark.skipif(why_no_kernels() is not None, reason="it is one of the kernels")
def test_what_cannot_be_cut():
    with pytest.raises(ValueError, match="as many elements"):
        kernels().cut(np.zeros(3), [np.zeros(2), np.zeros(2)])
    for flat_, like in ((np.zeros(8)[::2], [np.zeros(1)]), (np.zeros(2), [1.0]), ([1.0], [])):
        with pytest.raises(TypeError, match="NumPy array"):
            kernels().cut(flat_, like)


class Dlpack:
    def __init__(self, array, error=None):
        self.array, self.error = array, error

    def __dlpack__(self, **options):
        if self.error:
            raise self.error
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __array__(self, dtype=None, copy=None):
        return self.array


def test_arrays_of_other_libraries_are_shared_not_copied():
    base = np.arange(3.0)
    assert np.shares_memory(as_array(Dlpack(base)), base)
    assert np.shares_memory(as_array(Dlpack(base, BufferError("on a GPU"))), base)


class OfStrings(Dlpack):
    """As TensorFlow's: to ask it for DLPack is the end of the process."""

    dtype = SimpleNamespace(name="string")

    def __dlpack__(self, **options):
        os._exit(3)


class LibrarysError(Exception):
    """As TensorFlow's, which are none of Python's own."""


def test_what_dlpack_cannot_hand_over():
    with pytest.raises(ArgumentTypeError, match="dtype object cannot be sent"):
        as_array(OfStrings(np.array([b"a"], object)))
    base = np.arange(3.0)
    assert np.shares_memory(as_array(Dlpack(base, LibrarysError("quantized"))), base)


def test_a_tensor_with_gradients_is_refused(monkeypatch):
    tensor = Dlpack(np.ones(2), BufferError("requires gradient"))
    monkeypatch.setattr(Dlpack, "__array__", refuse_array)
    with pytest.raises(ArgumentTypeError, match=r"array of a Dlpack: use tensor.detach\(\)"):
        as_array(tensor)


def refuse_array(self, dtype=None, copy=None):
    """As torch does."""
    raise RuntimeError("use tensor.detach()")


def test_bfloat16_is_taken():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.ones(2, ml_dtypes.bfloat16)
    assert as_array(array) is array


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (np.zeros(2, ">f8"), UsageError, r"dtype >f8 .*; expected a native one: convert it with"),
        (np.array([object()]), ArgumentTypeError, "bcast_object or allgather_object"),
        ("text", ArgumentTypeError, "dtype <U4 cannot be sent"),
        (b"ab", ArgumentTypeError, "cannot be sent"),
        (None, ArgumentTypeError, "None is no array; expected an array or a number"),
        ({"a": 1}, ArgumentTypeError, "dtype object"),
        ([[1], [1, 2]], ArgumentTypeError, "cannot make an array of a list"),
        (np.zeros(1, "m8[s]"), ArgumentTypeError, "cannot be sent"),
    ],
)
def test_what_cannot_be_sent(value, kind, text):
    with pytest.raises(kind, match=text):
        as_array(value)


@pytest.mark.parametrize(("axis", "ndim", "want"), [(0, 1, 0), (-1, 3, 2), (2, 3, 2), (-3, 3, 0)])
def test_axis(axis, ndim, want):
    assert check_axis(axis, ndim, "x") == want
    assert check_axis(np.int32(axis), ndim, "x") == want


@pytest.mark.parametrize(("axis", "ndim"), [(1, 1), (-2, 1), (0, 0), (5, 3)])
def test_axis_out_of_range(axis, ndim):
    with pytest.raises(UsageError, match="what: "):
        check_axis(axis, ndim, "what")


@pytest.mark.parametrize("axis", [True, None, 1.0, "0"])
def test_axis_is_a_whole_number(axis):
    with pytest.raises(ArgumentTypeError, match="expected int"):
        check_axis(axis, 2, "x")


def test_root():
    check_root(np.int64(1), 2, "x")
    for root, kind in ((2, UsageError), (-1, UsageError), (True, ArgumentTypeError)):
        with pytest.raises(kind, match="x: root="):
            check_root(root, 2, "x")


def test_flat_is_a_view_where_it_can_be():
    array = np.arange(6.0).reshape(2, 3)
    assert np.shares_memory(flat(array), array)
    np.testing.assert_array_equal(flat(array.T), [0, 3, 1, 4, 2, 5])
    unaligned = np.zeros(17, np.uint8)[1:].view(np.float64)
    assert flat(unaligned).flags.aligned


def test_landing_is_out_only_where_that_is_safe():
    send = np.zeros(4)
    apart = np.zeros((2, 2))
    assert np.shares_memory(landing(apart, send), apart)
    assert np.shares_memory(landing(send, send), send)
    memory = np.zeros(5)
    for out in (None, np.zeros(4, "f4"), np.zeros((4, 2))[:, 0], memory[1:]):
        source = memory[:-1]
        fresh = landing(out, source)
        assert fresh.shape == (4,)
        assert fresh.dtype == source.dtype
        assert not np.shares_memory(fresh, memory)
        assert out is None or not np.shares_memory(fresh, out)


def test_deliver():
    result, out = np.arange(3.0), np.zeros(3)
    assert deliver(result, None) is result
    assert deliver(result, out) is out
    np.testing.assert_array_equal(out, result)
    assert deliver(out.reshape(3), out) is out


def test_out_must_fit():
    check_out(None, (1,), np.dtype("f8"), "x")
    check_out(np.zeros((2, 3)).T, (3, 2), np.dtype("f8"), "x")
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    for out in (np.zeros(2), np.zeros(3, "f4"), frozen):
        with pytest.raises(UsageError, match=r"x: out has .*; expected a writeable array"):
            check_out(out, (3,), np.dtype("f8"), "x")
    with pytest.raises(ArgumentTypeError, match="out is a float"):
        check_out(1.0, (), np.dtype("f8"), "x")


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_rows_there_and_back(axis):
    array = np.arange(24).reshape(2, 3, 4)
    elements = to_rows(array, axis)
    assert elements.flags.c_contiguous
    np.testing.assert_array_equal(elements, np.moveaxis(array, axis, 0).ravel())
    back = from_rows(elements, array.shape[axis], array, axis)
    np.testing.assert_array_equal(back, array)
    assert back.flags.c_contiguous
    assert row_counts([1, 0, 2], array.shape, axis) == [
        24 // array.shape[axis] * n for n in (1, 0, 2)
    ]
    assert row_signature(array.shape, axis) == tuple(np.delete(array.shape, axis))


@pytest.mark.parametrize("length", range(9))
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_even_lengths(length, size):
    lengths = even_lengths(length, size)
    assert sum(lengths) == length
    assert lengths == sorted(lengths, reverse=True)
    assert max(lengths) - min(lengths) <= 1


def test_names():
    assert all(hasattr(conversion, name) for name in conversion.__all__)


def test_masked_arrays_would_lose_their_mask():
    with pytest.raises(ArgumentTypeError, match="lose its mask"):
        as_array(np.ma.array([1.0, 2.0], mask=[False, True]))


def test_masked_arrays_would_hide_a_result():
    out = np.ma.masked_all(3)
    with pytest.raises(ArgumentTypeError, match=r"allreduce: out is a masked .* pass out\.data"):
        check_out(out, (3,), out.dtype, "allreduce")
    check_out(out.data, (3,), out.dtype, "allreduce")


def test_which_gpu_a_device_is():
    names = ["/job:worker/replica:0/task:3/device:GPU:12", "GPU:1", "/gpu:0", "CPU:0"]
    assert [gpu_devices.gpu_index(name) for name in names] == [12, 1, 0, None]
