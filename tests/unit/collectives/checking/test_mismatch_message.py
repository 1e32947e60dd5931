"""Fingerprints of calls, and the wording of reports of those that differ."""

import subprocess
import sys

import numpy as np
import pytest

from mpistrat.collectives.checking import fingerprint
from mpistrat.collectives.checking.fingerprint import Signature, digest
from mpistrat.collectives.checking.mismatch_message import describe, mismatch_text

FULL = Signature("allreduce", "sum", np.dtype("float32"), (2, 3), 1, 0, 99, "GPU")


def test_digest_differs_in_every_field_and_fits_in_a_word():
    others = ["reduce", "max", np.dtype("float64"), (3, 2), 0, 1, 98, None]
    signatures = [
        FULL,
        *(FULL._replace(**{k: v}) for k, v in zip(FULL._fields[:-1], others, strict=True)),
    ]
    signatures += [Signature("barrier"), Signature("close"), Signature("bcast", shape=(1, 2))]
    digests = [digest(signature) for signature in signatures]
    assert len(set(digests)) == len(digests)
    assert all(fingerprint.INVALID < d < 2**63 for d in digests)
    assert digest(FULL._replace(where="GPU:1")) == digest(FULL)  # each rank has its own


@pytest.mark.parametrize("seed", ["0", "4711"])
def test_digest_is_the_same_in_every_process(seed):
    code = (
        "import numpy as np; from mpistrat.collectives.checking.fingerprint import *;"
        "print(digest(Signature('allreduce', 'sum', np.dtype('f4'), (2, 3), np.int64(1), 0, 99,"
        " 'GPU')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) == digest(FULL)


def test_calls_are_described_as_a_user_writes_them():
    assert describe(Signature("barrier")) == "barrier()"
    assert describe(FULL) == (
        "allreduce(op=sum, dtype=float32, shape=(2, 3), root=1, axis=0, bucket_bytes=99,"
        " memory=GPU)"
    )


def test_report_groups_ranks_that_called_alike():
    text = mismatch_text({0: "barrier() at a.py:1", 1: "x()", 2: "barrier() at a.py:1"}, 2)
    assert text == (
        "the ranks called different collectives (seen on rank 2/3):\n"
        "  rank 0, 2: barrier() at a.py:1\n"
        "  rank 1: x()\n"
        "all ranks must make the same calls in the same order with matching arguments"
    )


def test_report_of_a_rank_that_failed_alone_does_not_blame_the_calls():
    text = mismatch_text({0: "x()", 1: "x(), after it failed with ValueError: no"}, 0, [1])
    assert text == (
        "the ranks cannot go on together (seen on rank 0/2):\n"
        "  rank 0: x()\n"
        "  rank 1: x(), after it failed with ValueError: no\n"
        "rank 1 went on after an error that the others do not know, and may have left out calls"
        " that they have made; let such an error end the program"
    )


FLOATS = ("allreduce", "sum", np.dtype("float32"))
FIRST = describe(Signature(*FLOATS, (2, 3)), "in run")


@pytest.mark.parametrize(
    ("other", "is_of_shapes"),
    [
        (describe(Signature(*FLOATS, (3, 2)), "in run"), True),
        (describe(Signature(*FLOATS, ()), "in run") + " at a.py:1 (f)", True),
        (describe(Signature("allreduce", "sum", np.dtype("int32"), (2, 3)), "in run"), False),
        (describe(Signature("allreduce", "max", np.dtype("float32"), (3, 2))), False),
        (describe(Signature(*FLOATS, (2, 3)), "elsewhere"), False),
        ("barrier()", False),
    ],
)
def test_report_of_unequal_shapes_has_the_words_of_tensorflow(other, is_of_shapes):
    text = mismatch_text({0: FIRST, 1: other}, 0)
    assert text.startswith("Shape mismatch: the ranks called") == is_of_shapes, text
    lists = [
        describe(Signature("allreduce_many", "sum", (FLOATS[2],) * 2, shapes, bucket_bytes=9))
        for shapes in (((2,), (1,)), ((2,), (1, 1)))
    ]
    text = mismatch_text(dict(enumerate([*lists, lists[0]])), 0)
    assert text.startswith("Shape mismatch: the ranks called"), text


def lists_of(shapes, dtype="float32", most=1000):
    dtypes = (np.dtype(dtype),) * len(shapes)
    call = Signature("allreduce_many", "sum", dtypes, tuple(shapes), bucket_bytes=9)
    return describe(call, most=most)


def test_a_long_list_is_described_by_its_number_of_arrays():
    shapes = [(1, 2), (), (3,)]
    few = "3 arrays [float32 (1, 2); float32 (); float32 (3,)]"
    assert lists_of(shapes) == f"allreduce_many(op=sum, {few}, bucket_bytes=9)"
    assert lists_of(shapes, most=0) == lists_of(shapes)
    many = "allreduce_many(op=sum, 6 arrays, bucket_bytes=9)"
    assert lists_of(shapes * 2, most=0) == many
    assert lists_of([]) == "allreduce_many(op=sum, 0 arrays [], bucket_bytes=9)"


TEN = lists_of([(1,)] * 10)


@pytest.mark.parametrize(
    ("other", "mine", "theirs", "is_of_shapes"),
    [
        (
            lists_of([(1,)] * 6 + [(5, 5)] + [(2,)] * 3),
            "[6]: float32 (1,)",
            "[6]: float32 (5, 5)",
            True,
        ),
        (
            lists_of([(1,)] * 6),
            "10 arrays, first difference at arrays[6]: float32 (1,)",
            "6 arrays, first difference at arrays[6]: none, bucket",
            False,
        ),
        (lists_of([(1,)] * 10, "int8"), "[0]: float32 (1,)", "[0]: int8 (1,)", False),
        (lists_of([(1,)]), "[1]: float32 (1,)", "1 array [float32 (1,)], bucket", False),
        ("barrier()", "10 arrays, bucket", "barrier()", False),
    ],
)
def test_report_of_long_lists_shows_the_first_array_that_differs(
    other, mine, theirs, is_of_shapes
):
    text = mismatch_text({0: TEN, 1: other, 2: other}, 0)
    assert text.startswith("Shape mismatch") == is_of_shapes
    rows = text.splitlines()[1:3]
    assert rows[0].startswith("  rank 0: allreduce_many(op=sum, 10 arrays")
    assert mine in rows[0]
    assert rows[1].startswith("  rank 1, 2: ")
    assert theirs in rows[1]
    assert all(len(row) < 110 for row in rows)


def test_a_list_that_is_too_long_is_cut_between_its_arrays():
    lists = [lists_of([(1,)] * 90 + [(rank,)] * 9_000, most=3000) for rank in (1, 2)]
    assert all(len(one) < 3100 for one in lists)
    assert all(one.endswith("; ...], bucket_bytes=9)") for one in lists)
    text = mismatch_text(dict(enumerate(lists)), 0)
    assert "9090 arrays, first difference at arrays[90]: float32 (2,)" in text
