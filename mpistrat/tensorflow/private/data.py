"""TensorFlow's private modules for datasets; see `api`."""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from mpistrat.tensorflow.private.api import load

__all__ = [
    "batch_size_of",
    "cardinality_in",
    "component_dtypes",
    "dataset_of",
    "file_of_cache",
    "functions_of",
    "graph_of",
    "inputs_of",
    "is_distributed",
    "is_of_function",
    "keep_datasets_of_iterators",
    "on_iterators",
    "on_passes",
    "on_unbuilt_iterators",
    "original_dataset",
    "own_dataset",
    "replace_own_dataset",
    "seeds_of",
    "source_of",
    "taken_resources",
    "tell_iterators_apart",
    "variant_of",
    "with_shard_policy",
    "wrap_dataset_seeds",
    "wrap_device_datasets",
    "wrapped",
]

_modules = load(
    {
        "data.ops.multi_device_iterator_ops": (
            "OwnedMultiDeviceIterator",
            "_create_device_dataset",
            "gen_dataset_ops",
        ),
        "data.ops.iterator_ops": ("OwnedIterator",),
        "data.ops.dataset_ops": ("UnaryUnchangedStructureDataset", "_VariantDataset"),
        "distribute.input_lib": (
            "DistributedDataset",
            "DistributedDatasetAndIteratorSpec",
            "DistributedDatasetsFromFunction",
            "DistributedIteratorBase",
            "_should_use_multi_device_iterator",
        ),
        "data.util.random_seed": ("get_seed",),
        "distribute.coordinator.values": (
            "PerWorkerDatasetFromDatasetFunction",
            "PerWorkerDistributedIterator",
        ),
    }
)


def own_dataset(distributed: Any) -> Any:
    """Return this process's dataset of a DistributedDataset with one worker a process."""
    (dataset,) = distributed._cloned_datasets
    return dataset


def variant_of(dataset: Any) -> Any:
    """Return the variant tensor that represents a dataset in functions."""
    return dataset._variant_tensor


def component_dtypes(dataset: Any) -> list[Any]:
    """Return the dtypes of an element's component tensors."""
    return list(dataset._flat_structure["output_types"])


def batch_size_of(dataset: Any) -> int:
    """Return the size of a batch, as TensorFlow finds it in the dataset's graph, or -1."""
    return int(tf.raw_ops.ComputeBatchSize(input_dataset=dataset._variant_tensor))


def wrapped(dataset: Any, operation: Callable[..., Any], **attributes: Any) -> Any:
    """Return the dataset of an operation on `dataset` that keeps the element structure."""
    variant = operation(dataset._variant_tensor, **attributes, **dataset._flat_structure)
    kind: Any = _modules["data.ops.dataset_ops"].UnaryUnchangedStructureDataset
    return kind(dataset, variant)


def with_shard_policy(dataset: Any, policy: Any) -> Any:
    """Return the dataset with another AutoShardPolicy, without Python's warning of that."""
    options = copy.deepcopy(dataset.options())
    options._set_mutable(True)  # all of it: parts are objects of their own
    options.experimental_distribute.auto_shard_policy = policy
    kind: Any = _modules["data.ops.dataset_ops"].UnaryUnchangedStructureDataset
    same = kind(dataset, dataset._variant_tensor)
    # TensorFlow warns if options that it merges differ: here it merges them with none.
    same._options_attr = tf.data.Options()
    return same.with_options(options)


def replace_own_dataset(distributed: Any, dataset: Any) -> None:
    """Replace this process's dataset of a DistributedDataset by one of equal structure."""
    distributed._cloned_datasets = [dataset]


def graph_of(dataset: Any) -> Any:
    """Return a dataset's GraphDef; None if TensorFlow cannot serialize it, as above 2 GB."""
    ignored = 1  # state that is not in the graph stays where it is, in this process
    try:
        text = tf.raw_ops.DatasetToGraphV2(
            input_dataset=dataset._variant_tensor, external_state_policy=ignored
        ).numpy()
    except tf.errors.OpError:
        return None
    return tf.compat.v1.GraphDef.FromString(text)


def dataset_of(graph: Any, like: Any) -> Any:
    """Return the dataset of a graph, with the element structure and options of another one."""
    variant = tf.raw_ops.DatasetFromGraph(graph_def=graph.SerializeToString())
    kind: Any = _modules["data.ops.dataset_ops"]._VariantDataset
    return kind(variant, like.element_spec).with_options(like.options())


def cardinality_in(graph: Any, node: str, at_least: int) -> int:
    """Return the number of elements of a node in a dataset's graph, if necessary by reading.

    It is not read beyond `at_least`, and has one string an element.
    """
    part = tf.compat.v1.GraphDef()
    part.CopyFrom(graph)
    # The graph's result becomes the node that gives the file names.
    for one in part.node:
        if one.op == "_Retval":
            one.input[0] = node
    variant = tf.raw_ops.DatasetFromGraph(graph_def=part.SerializeToString())
    found: Any = _modules["data.ops.dataset_ops"]._VariantDataset(
        variant, tf.TensorSpec([], tf.string)
    )
    number = int(found.cardinality())
    if number == tf.data.INFINITE_CARDINALITY:
        return at_least
    return number if number >= 0 else sum(1 for _ in found.take(at_least))


def wrap_device_datasets(wrap: Callable[[Any], Any]) -> None:
    """Wrap the per-device datasets that strategies' iterators make of a process's dataset."""
    iterators: Any = _modules["data.ops.multi_device_iterator_ops"]
    make = iterators._create_device_dataset
    iterators._create_device_dataset = lambda *args, **kwargs: wrap(make(*args, **kwargs))


def keep_datasets_of_iterators() -> None:
    """Make strategies' iterators keep the dataset derived from theirs until they are freed."""
    iterators: Any = _modules["data.ops.multi_device_iterator_ops"]
    operations, kind, made = iterators.gen_dataset_ops, iterators.OwnedMultiDeviceIterator, _Made()
    start, init = operations.multi_device_iterator_init, kind.__init__

    # The iterator derives a dataset of its own and keeps it in no attribute. This call is the only
    # one that gets it.
    def noted(dataset: Any, *args: Any, **kwargs: Any) -> Any:
        made.dataset = dataset
        return start(dataset, *args, **kwargs)

    @functools.wraps(init)
    def keeping(self: Any, *args: Any, **kwargs: Any) -> None:
        made.dataset = None  # an iterator of another kind may have made one
        try:
            init(self, *args, **kwargs)
            # Python frees attributes in the order in which they were set. So the resource goes
            # first, and waits for the thread that reads from this dataset.
            self._mpistrat_dataset = made.dataset
        finally:
            made.dataset = None

    operations.multi_device_iterator_init, kind.__init__ = noted, keeping


def tell_iterators_apart() -> None:
    """Retrace functions for distributed iterators of another kind.

    TensorFlow 2.21 takes iterators for equal if their elements are, so that a function that was
    traced for one kind fails with the other, or does not see the end of its data.
    """
    inputs: Any = _modules["distribute.input_lib"]
    spec = inputs.DistributedDatasetAndIteratorSpec
    serialize, check = spec._serialize, spec.sanity_check_type

    def kind(self: Any) -> tuple[bool, bool]:
        is_multi_device = inputs._should_use_multi_device_iterator(self._options)
        return is_multi_device, bool(self._enable_get_next_as_optional)

    def with_kind(self: Any) -> Any:
        return (*serialize(self), *kind(self))

    def checked(self: Any, other: Any) -> None:
        check(self, other)
        if kind(self) != kind(other):
            raise ValueError(f"iterators of different kinds: {self} and {other}")

    spec._serialize, spec.sanity_check_type = with_kind, checked


def on_passes(begin: Callable[[Any], Any]) -> None:
    """Call `begin` with each distributed dataset that Python begins to iterate over.

    It returns None, or an object whose ``note()`` is called after each element, and whose
    ``end()`` when the iterator has nothing left.
    """
    inputs: Any = _modules["distribute.input_lib"]
    start, get = inputs.DistributedDataset.__iter__, inputs.DistributedIteratorBase.__next__

    def beginning(self: Any) -> Any:
        # In a graph this is called while tracing, before any pass begins.
        iteration = begin(self) if tf.executing_eagerly() else None
        found = start(self)
        found._mpistrat_iteration = iteration
        return found

    def ending(self: Any) -> Any:
        iteration = getattr(self, "_mpistrat_iteration", None)
        if iteration is None or not tf.executing_eagerly():
            return get(self)
        try:
            found = get(self)
        except StopIteration:
            # Collective. All ranks come here after the same batch, since their iterators end
            # together.
            iteration.end()
            raise
        iteration.note()
        return found

    inputs.DistributedDataset.__iter__ = beginning
    inputs.DistributedIteratorBase.__next__ = ending


def on_iterators(note: Callable[[Any], object]) -> None:
    """Call `note` with each iterator that Python makes of a dataset, and of a strategy's."""
    found: Any = (
        _modules["data.ops.iterator_ops"].OwnedIterator,
        _modules["data.ops.multi_device_iterator_ops"].OwnedMultiDeviceIterator,
    )
    for kind in found:
        kind.__init__ = _noting(kind.__init__, note)


def _noting(init: Callable[..., None], note: Callable[[Any], object]) -> Callable[..., None]:
    @functools.wraps(init)
    def noting(self: Any, dataset: Any = None, *args: Any, **kwargs: Any) -> None:
        init(self, dataset, *args, **kwargs)
        # Without a dataset it stands for another one in a function; in a graph nothing runs.
        if dataset is not None and tf.executing_eagerly():
            self._mpistrat_source = dataset  # those for several devices keep it nowhere
            note(self)

    return noting


def source_of(iterator: Any) -> Any:
    """Return the dataset of an iterator that `on_iterators` has told of."""
    return iterator._mpistrat_source


def taken_resources(iterator: Any) -> list[Any]:
    """Take the tensors from an iterator that keep its pipeline alive; it cannot be used then."""
    names = ("_device_iterators", "_multi_device_iterator_resource", "_iterator_resource")
    found = [vars(iterator).pop(name) for name in names if name in vars(iterator)]
    return [one for one in tf.nest.flatten(found) if isinstance(one, tf.Tensor)]


class _Made(threading.local):
    """The dataset of the iterator that this thread has just made."""

    dataset: Any = None


def is_distributed(data: Any) -> bool:
    """Tell whether `data` is what ``experimental_distribute_dataset`` returned."""
    return isinstance(data, _modules["distribute.input_lib"].DistributedDataset)


def is_of_function(data: Any) -> bool:
    """Tell whether only workers have the data set: a function of the program makes it there."""
    of_workers = _modules["distribute.coordinator.values"]
    kinds = (
        _modules["distribute.input_lib"].DistributedDatasetsFromFunction,
        of_workers.PerWorkerDatasetFromDatasetFunction,
        of_workers.PerWorkerDistributedIterator,
    )
    return isinstance(data, kinds)


def on_unbuilt_iterators(refuse: Callable[[Any], None]) -> None:
    """Call ``refuse(strategy)`` before ``iter`` of distributed data that was not built here."""
    library: Any = _modules["distribute.input_lib"]
    for kind in (library.DistributedDataset, library.DistributedDatasetsFromFunction):
        kind.__iter__ = _checked_iter(kind.__iter__, refuse)


def _checked_iter(original: Callable[[Any], Any], refuse: Callable[[Any], None]) -> Any:
    @functools.wraps(original)
    def checked(self: Any) -> Any:
        if not self._built:
            refuse(self._strategy)
        return original(self)

    return checked


def original_dataset(distributed: Any) -> Any:
    """Return the data set that was distributed."""
    return distributed._original_dataset


def wrap_dataset_seeds(wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Wrap the function that gives random data sets their seeds."""
    seeds: Any = _modules["data.util.random_seed"]
    seeds.get_seed = wrap(seeds.get_seed)


def inputs_of(dataset: Any) -> Any:
    """Return the input data sets of a data set."""
    return dataset._inputs()


def functions_of(dataset: Any) -> list[str]:
    """Return the names of the functions of a data set, without its inputs' functions."""
    return [own.function.name.decode() for own in dataset._functions()]


def file_of_cache(dataset: Any) -> str:
    """Return the file name of a data set that caches in a file; "" for any other one."""
    name = getattr(dataset, "_filename", None) if "Cache" in type(dataset).__name__ else None
    return "" if name is None else (tf.get_static_value(name) or b"").decode()


def seeds_of(dataset: Any) -> list[Any]:
    """Return the two seed tensors of a random data set; None for a missing one."""
    return [getattr(dataset, name, None) for name in ("_seed", "_seed2")]
