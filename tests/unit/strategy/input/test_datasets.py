"""mpistrat.data.Dataset: the order, the batches and the specs that tf.data gives."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpistrat.data import AUTOTUNE, ArraySpec, Dataset
from mpistrat.errors import ArgumentTypeError, UsageError


def values(dataset):
    return [np.asarray(element).tolist() for element in dataset]


# ----------------------------------------------------------------------------------- sources


def test_slices_of_an_array_are_its_rows():
    rows = list(Dataset.from_tensor_slices(np.arange(6).reshape(3, 2)))
    assert [row.tolist() for row in rows] == [[0, 1], [2, 3], [4, 5]]


def test_tuples_and_dicts_are_structure():
    x, y = np.arange(3), np.arange(3) * 10.0
    assert list(Dataset.from_tensor_slices((x, {"y": y}))) == [
        (0, {"y": 0.0}),
        (1, {"y": 10.0}),
        (2, {"y": 20.0}),
    ]


def test_b70_lists_are_one_array():
    assert values(Dataset.from_tensor_slices([np.arange(3), np.arange(3)])) == [[0, 1, 2]] * 2
    assert values(Dataset.from_tensor_slices([1, 2, 3])) == [1, 2, 3]
    assert list(Dataset.from_tensor_slices({"a": [1, 2]})) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    ("nest", "words"),
    [
        (np.float32(3), "from_tensors"),
        ((), "at least one array"),
        ((np.zeros(2), np.zeros(3)), "lengths along axis 0 differ"),
        ([np.zeros(2), np.zeros(3)], "do not stack"),
        (np.array([object()]), "Python objects"),
        ((np.zeros(2), None), "Python objects"),
    ],
)
def test_slices_refuse_what_has_no_rows(nest, words):
    with pytest.raises(ValueError, match=words):
        Dataset.from_tensor_slices(nest)


def test_from_tensors_is_one_element():
    assert values(Dataset.from_tensors([[1.0]])) == [[[1.0]]]
    assert values(Dataset.from_tensors([[1.0]]).repeat(2).batch(2)) == [[[[1.0]], [[1.0]]]]
    assert next(iter(Dataset.from_tensors({"a": 1})))["a"] == 1


def test_range_counts_as_python_does():
    assert values(Dataset.range(3)) == [0, 1, 2]
    assert values(Dataset.range(5, 2)) == []
    assert values(Dataset.range(1, 7, 2).batch(2)) == [[1, 3], [5]]
    assert values(Dataset.range(5, 0, -2).batch(9)) == [[5, 3, 1]]
    assert next(iter(Dataset.range(3))).dtype == np.int64
    assert next(iter(Dataset.range(3, output_type=np.float32).batch(2))).dtype == np.float32


def test_generator_is_called_once_an_epoch():
    calls = []

    def generate():
        calls.append(1)
        yield [1, 2]
        yield [3, 4]

    dataset = Dataset.from_generator(generate)
    assert values(dataset) == values(dataset) == [[1, 2], [3, 4]]
    assert len(calls) == 2


def test_generator_must_be_a_function():
    with pytest.raises(TypeError, match="pass the function"):
        Dataset.from_generator(iter([1]))


def test_generator_signature_converts_and_checks():
    spec = ArraySpec((None,), np.float32)
    dataset = Dataset.from_generator(lambda: [[1, 2], [3]], spec)
    assert [(e.dtype.name, e.tolist()) for e in dataset] == [
        ("float32", [1, 2]),
        ("float32", [3]),
    ]
    assert dataset.element_spec == spec
    with pytest.raises(ArgumentTypeError, match="put None where the length varies"):
        list(Dataset.from_generator(lambda: [[1, 2, 3]], ArraySpec((2,), np.float32)))
    with pytest.raises(ArgumentTypeError, match="structure"):
        list(Dataset.from_generator(lambda: [([1], [2])], {"a": spec}))


# ------------------------------------------------------------------------------- rearranging


@given(n=st.integers(0, 40), size=st.integers(1, 12), drop=st.booleans())
def test_batches_partition_the_rows(n, size, drop):
    x, y = np.arange(n), np.arange(n) ** 2
    dataset = Dataset.from_tensor_slices({"x": x, "y": y}).batch(size, drop)
    batches = list(dataset)
    kept = n - n % size if drop else n
    assert [v for b in batches for v in b["x"].tolist()] == list(range(kept))
    assert all((b["y"] == b["x"] ** 2).all() for b in batches)
    assert all(len(b["x"]) == size for b in batches[:-1])
    assert len(dataset) == len(batches)


@given(
    n=st.integers(0, 30),
    ops=st.lists(
        st.one_of(
            st.tuples(st.just("batch"), st.integers(1, 4)),
            st.tuples(st.just("repeat"), st.integers(0, 3)),
            st.tuples(st.just("take"), st.integers(-1, 20)),
            st.tuples(st.just("skip"), st.integers(-1, 20)),
            st.tuples(st.just("shard"), st.integers(1, 3)),
            st.tuples(st.just("shuffle"), st.one_of(st.none(), st.integers(1, 9))),
        ),
        max_size=4,
    ),
)
def test_length_is_the_number_of_elements(n, ops):
    dataset, batched = Dataset.from_tensor_slices(np.arange(n)), False
    for name, argument in ops:
        if name == "batch" and batched:
            continue  # unequal batches do not stack
        batched |= name == "batch"
        arguments = (argument, argument - 1) if name == "shard" else (argument,)
        dataset = getattr(dataset, name)(*arguments)
    assert len(list(dataset)) == len(dataset)


def test_batch_of_batches_and_refusals():
    assert values(Dataset.range(8).batch(2).batch(2)) == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    with pytest.raises(UsageError, match="at least 1"):
        Dataset.range(3).batch(0)
    with pytest.raises(TypeError, match="whole number"):
        Dataset.range(3).batch(2.0)
    with pytest.raises(ValueError, match="do not stack"):
        list(Dataset.from_generator(lambda: [[1], [1, 2]]).batch(2))


def test_repeat():
    assert values(Dataset.range(2).repeat(2)) == [0, 1, 0, 1]
    assert values(Dataset.range(2).repeat(0)) == []
    assert values(Dataset.range(2).repeat().take(5)) == [0, 1, 0, 1, 0]
    assert values(Dataset.range(2).repeat(-1).take(3)) == [0, 1, 0]
    assert values(Dataset.range(0).repeat()) == []
    with pytest.raises(TypeError, match="endless"):
        len(Dataset.range(2).repeat())
    with pytest.raises(TypeError, match="not known"):
        len(Dataset.from_generator(lambda: [1]))
    assert bool(Dataset.range(2).repeat()) is True


def test_shard_take_skip():
    assert values(Dataset.range(7).shard(3, 1)) == [1, 4]
    assert values(Dataset.range(5).take(2)) == [0, 1]
    assert values(Dataset.range(5).take(-1)) == [0, 1, 2, 3, 4]
    assert values(Dataset.range(5).skip(2)) == [2, 3, 4]
    assert values(Dataset.range(5).skip(-1)) == []
    for arguments in ((3, 3), (0, 0), (3, -1)):
        with pytest.raises(UsageError, match="shard"):
            Dataset.range(7).shard(*arguments)


# ------------------------------------------------------------------------------------ shuffle


@given(n=st.integers(0, 60), buffer=st.one_of(st.none(), st.integers(1, 70)))
def test_shuffle_permutes_alike_on_every_rank(n, buffer):
    ranks = [Dataset.range(n).shuffle(buffer, seed=5) for _ in range(2)]
    for _ in range(3):
        first, second = (values(rank) for rank in ranks)
        assert first == second
        assert sorted(first) == list(range(n))


def test_shuffle_depends_on_seed_and_epoch():
    dataset = Dataset.range(50).shuffle(seed=1)
    first, second = values(dataset), values(dataset)
    assert first != second
    assert first != values(Dataset.range(50).shuffle(seed=2))
    assert first == values(Dataset.range(50).shuffle(seed=1))


def test_shuffle_can_keep_its_order():
    dataset = Dataset.range(50).shuffle(100, 1, reshuffle_each_iteration=False)
    once = values(dataset)
    assert values(dataset) == once
    assert values(dataset.repeat(2)) == once * 2


def test_shuffle_then_repeat_reshuffles_each_round():
    twice = values(Dataset.range(50).shuffle(seed=1).repeat(2))
    assert twice[:50] != twice[50:]
    assert sorted(twice[:50]) == sorted(twice[50:]) == list(range(50))


def test_windowed_shuffle_keeps_elements_near():
    order = values(Dataset.range(100).shuffle(5, seed=3))
    assert order != list(range(100))
    # An element cannot leave the window before it has come into it.
    assert all(value <= place + 5 for place, value in enumerate(order))


def test_peeking_on_one_rank_does_not_change_what_others_see():
    left, right = (Dataset.range(20).shuffle(seed=1) for _ in range(2))
    assert left.element_spec == ArraySpec((), np.int64)
    left.map(lambda x: x).element_spec  # noqa: B018
    assert values(left) == values(right)


def test_shuffle_refusals():
    with pytest.raises(UsageError, match="at least 1"):
        Dataset.range(5).shuffle(0)
    with pytest.raises(UsageError, match="buffer_size"):
        Dataset.range(5).repeat().shuffle()
    assert values(Dataset.range(5).shuffle(9, seed=None)) == values(Dataset.range(5).shuffle(9))
    assert sorted(values(Dataset.range(5).shuffle(9, seed=-3))) == [0, 1, 2, 3, 4]


# ------------------------------------------------------------------- transforming and reading


def test_map_passes_tuples_as_arguments():
    assert values(Dataset.from_tensor_slices(([1, 2], [3, 4])).map(lambda a, b: a + b)) == [4, 6]
    assert values(Dataset.from_tensor_slices({"a": [1, 2]}).map(lambda d: d["a"])) == [1, 2]
    assert list(Dataset.range(2).map(lambda x: [x, x + 1])) == [(0, 1), (1, 2)]
    assert values(Dataset.range(4).batch(2).map(lambda x: x * 2)) == [[0, 2], [4, 6]]
    assert values(Dataset.range(4).map(lambda x: x + 1).batch(3)) == [[1, 2, 3], [4]]


def test_enumerate():
    numbered = Dataset.from_tensor_slices(([1, 2], [3, 4])).enumerate(5)
    assert list(numbered) == [(5, (1, 3)), (6, (2, 4))]
    assert numbered.element_spec[0] == ArraySpec((), np.int64)


@pytest.mark.parametrize("buffer", [0, 1, 3, AUTOTUNE])
def test_prefetch_changes_nothing(buffer):
    assert values(Dataset.range(7).batch(2).prefetch(buffer)) == [[0, 1], [2, 3], [4, 5], [6]]


def test_elements_belong_to_the_receiver():
    data = np.zeros((4, 2))
    for dataset in (
        Dataset.from_tensor_slices(data),
        Dataset.from_tensor_slices(data).batch(2),
        Dataset.from_tensor_slices(data).shuffle().batch(2),
        Dataset.from_tensors(data).repeat(2),
    ):
        for element in dataset:
            np.add(element, 1, out=element)
    assert not data.any()


def test_batches_of_slices_index_the_arrays_at_once():
    class Counting(np.ndarray):
        reads = 0

        def __getitem__(self, key):
            Counting.reads += 1
            return super().__getitem__(key)

        def take(self, *args, **kwargs):
            Counting.reads += 1
            return super().take(*args, **kwargs)

    data = np.arange(64.0).view(Counting)
    for dataset in (Dataset.from_tensor_slices(data), Dataset.from_tensor_slices(data).shuffle()):
        Counting.reads = 0
        assert sum(len(batch) for batch in dataset.batch(16)) == 64
        assert Counting.reads == 4


def test_element_spec():
    x, y = np.zeros((5, 3), np.float32), np.zeros(5, np.int8)
    dataset = Dataset.from_tensor_slices({"x": x, "y": (y,)})
    assert dataset.element_spec == {
        "x": ArraySpec((3,), np.float32),
        "y": (ArraySpec((), np.int8),),
    }
    assert dataset.batch(2).element_spec["x"] == ArraySpec((None, 3), np.float32)
    assert dataset.batch(2, True).element_spec["y"][0] == ArraySpec((2,), np.int8)
    assert dataset.batch(2).map(lambda d: d["x"]).element_spec == ArraySpec((None, 3), "f4")
    assert dataset.batch(2, True).map(lambda d: d["x"]).element_spec == ArraySpec((2, 3), "f4")
    assert Dataset.from_generator(lambda: [[1, 2]]).element_spec == ArraySpec((None,), int)
    with pytest.raises(UsageError, match="no element to look at"):
        Dataset.from_generator(list).element_spec  # noqa: B018


def test_array_spec():
    spec = ArraySpec((None, 2), np.float32)
    assert repr(spec) == "ArraySpec(shape=(None, 2), dtype=float32, name=None)"
    assert spec.is_compatible_with(np.zeros((3, 2), np.float32))
    assert not spec.is_compatible_with(np.zeros((3, 2)))
    assert not spec.is_compatible_with(np.zeros(2, np.float32))
    assert spec.is_compatible_with(ArraySpec((3, 2), np.float32))
    assert ArraySpec((3, 2), np.float32).is_compatible_with(spec)
    assert ArraySpec(None, np.float32).is_compatible_with(spec)
    assert ArraySpec((), int).is_compatible_with(3)
    assert hash(spec) == hash(ArraySpec([None, 2], "float32"))


def test_repr_does_not_touch_the_data():
    assert repr(Dataset.range(3)) == "<mpistrat.data.Dataset length=3>"
    assert repr(Dataset.from_generator(lambda: 1 / 0)) == "<mpistrat.data.Dataset length=unknown>"
    assert repr(Dataset.range(0)) == "<mpistrat.data.Dataset length=0>"


def test_a_seed_that_is_no_number():
    with pytest.raises(ArgumentTypeError, match="shuffle: seed is 'a'; expected a whole number"):
        Dataset.range(5).shuffle(3, seed="a")
