"""Mistakes under TensorFlow strategies: an error on every rank, soon, that says what is wrong."""

import time

import pytest

tf = pytest.importorskip("tensorflow")

import mpistrat.tensorflow as distribute  # noqa: E402 - TensorFlow may be missing
from helpers.mistakes import refused  # noqa: E402
from helpers.tf.cases import Case, drop, some  # noqa: E402
from helpers.tf.process import four_cpus  # noqa: E402
from mpistrat.errors import (  # noqa: E402
    ClosedError,
    CommunicationError,
    MismatchError,
    UsageError,
)
from mpistrat.testing.sets import takes_long, with_all  # noqa: E402

four_cpus()

pytestmark = pytest.mark.mpi(ranks=2, timeout_s=60)
CASES = some([Case(2, 1), Case(2, 2), Case(2, 1, "Central")])
TWO = ["CPU:0", "CPU:1"]
FAILED = (tf.errors.OpError, CommunicationError)
RUNS = {"eager": lambda call: call, "graph": tf.function}


def here():
    return tf.distribute.get_replica_context()


def works(s):
    total = s.run(lambda: here().all_reduce("SUM", tf.ones([3])))
    return s.experimental_local_results(total)[0].numpy()[0] == s.num_replicas_in_sync


DIFFERENT = {
    "shapes": lambda s, rank: here().all_reduce("SUM", tf.ones([2 + rank])),
    "shapes of one size": lambda s, rank: here().all_reduce(
        "SUM", tf.ones([[2, 3], [3, 2]][rank])
    ),
    "lists of one size": lambda s, rank: here().all_reduce(
        "SUM", [tf.ones([2 + rank]), tf.ones([3 - rank])]
    ),
    "ranks": lambda s, rank: here().all_reduce("SUM", tf.ones([2] * (1 + rank))),
    "dtypes": lambda s, rank: here().all_reduce("SUM", tf.ones([2], ["float32", "int32"][rank])),
    "reductions": lambda s, rank: here().all_reduce(["SUM", "MEAN"][rank], tf.ones([2])),
    "reductions of lists": lambda s, rank: here().all_reduce(
        ["SUM", "MEAN"][rank], [tf.ones([2]), tf.ones([3])]
    ),
    "reductions of integers": lambda s, rank: here().all_reduce(
        ["SUM", "MEAN"][rank], tf.ones([2], tf.int32)
    ),
    "reductions of lists of integers": lambda s, rank: here().all_reduce(
        ["SUM", "MEAN"][rank], [tf.ones([2], tf.int64), tf.ones([3], tf.int64)]
    ),
    "reductions of rows": lambda s, rank: here().all_reduce(
        ["SUM", "MEAN"][rank],
        tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]), tf.constant([3, 2])),
    ),
    "calls": lambda s, rank: (
        here().all_gather(tf.ones([2]), axis=0) if rank else here().all_reduce("SUM", tf.ones([2]))
    ),
    "gathers": lambda s, rank: here().all_gather(tf.ones([2, 3 + rank]), axis=0),
    "numbers": lambda s, rank: here().all_reduce("SUM", [tf.ones([2])] * (1 + rank)),
}


OF_EACH_KIND = ("shapes", "calls", "gathers")  # the others reach the same calls in all strategies
BY_LAYOUT = [
    (layout, what)
    for what in DIFFERENT
    for layout in CASES
    if with_all() or layout.kind == "Mirrored" or what in OF_EACH_KIND
]


@takes_long()
@pytest.mark.parametrize(("layout", "what"), BY_LAYOUT, ids=str)
@pytest.mark.parametrize("how", RUNS)
def test_calls_that_differ(layout, how, what):
    with layout.ours() as s:
        rank = s.communicator.rank
        step = RUNS[how](lambda: s.run(lambda: DIFFERENT[what](s, rank)))
        with refused(MismatchError, "(?s)ranks called different.*rank 0.*rank 1") as caught:
            step()
        assert isinstance(caught.value, tf.errors.InvalidArgumentError)
        assert works(s)


@pytest.mark.parametrize("layout", CASES, ids=str)
@pytest.mark.parametrize("how", RUNS)
def test_unequal_shapes_have_the_words_of_tensorflow(layout, how):
    with layout.ours() as s:
        values = s.run(lambda: tf.ones([2 + s.communicator.rank]))
        step = RUNS[how](lambda: s.reduce("SUM", values, axis=None))
        with refused(tf.errors.InvalidArgumentError, "Shape mismatch"):
            step()
        assert works(s)


def branching(s, after):
    """Return a step with a collective in a branch, and one after that for all, if wanted."""

    def fn(flag):
        one = tf.cond(flag, lambda: here().all_reduce("SUM", tf.ones([2])), lambda: tf.ones([2]))
        return here().all_reduce("SUM", tf.ones([3]))[0] + one if after else one

    return tf.function(lambda flag: s.run(fn, (flag,)))


@takes_long()
def test_a_branch_that_one_rank_takes():
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        step = branching(s, after=True)
        with refused(MismatchError, r"(?s)rank 0: .*\(3,\).*rank 1: .*\(2,\)"):
            step(tf.constant(s.communicator.rank == 1))
        assert works(s)


def test_a_branch_that_one_rank_takes_before_the_others_end():
    s = distribute.MirroredStrategy(["CPU:0"])
    step = branching(s, after=False)
    with refused(FAILED, r"(?s)rank 0: close.*rank 1: allreduce"):
        step(tf.constant(s.communicator.rank == 1))
        s.close()
    drop(s)


def test_a_mean_leaves_the_communicators_label():
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        s.communicator.label = "mine"
        s.run(lambda: here().all_reduce("MEAN", tf.constant([1])))
        assert s.communicator.label == "mine"


FIRST_VALUES = {
    "shapes": lambda rank: tf.ones([[2, 3], [3, 2]][rank]),
    "dtypes": lambda rank: tf.ones([2], ["float32", "int32"][rank]),
}


def test_short_lists_that_differ_in_their_shapes():
    """They are copied together once they are known, and are told apart even so."""
    lists = [[tf.ones(shape) for shape in shapes] for shapes in ([2, 3], [3, 2], [[5]], [[1, 5]])]
    with distribute.MirroredStrategy(["CPU:0"]) as s:

        def add(tensors):
            return s.run(lambda: here().all_reduce("SUM", [*tensors, tf.ones(1)]))

        for tensors in lists * 3:
            for got in add(tensors):
                assert (got.numpy() == s.communicator.size).all()
        for i in range(2):
            for j in range(2, 4):
                mine = lists[i if s.communicator.rank else j]
                with refused((tf.errors.InvalidArgumentError, MismatchError), "rank 1"):
                    add(mine)
        with refused((tf.errors.InvalidArgumentError, MismatchError), "rank 1"):
            add(lists[s.communicator.rank % 2])
        assert add(lists[0])[0].numpy()[0] == s.communicator.size
    drop(s)


@pytest.mark.parametrize("layout", CASES, ids=str)
@pytest.mark.parametrize("what", FIRST_VALUES)
def test_variables_that_differ(layout, what):
    with layout.ours() as s, s.scope():
        with refused(MismatchError, "(?s)ranks called different.*rank 0: bcast.*rank 1: bcast"):
            tf.Variable(FIRST_VALUES[what](s.communicator.rank))
        assert tf.Variable(s.communicator.rank + 1).numpy() == 1
        assert works(s)


@pytest.mark.parametrize("layout", CASES, ids=str)
def test_a_rank_that_raises_in_run(layout):
    def fn():
        if s.communicator.rank == 1:
            raise KeyError("a mistake")
        return here().all_reduce("SUM", tf.constant(1.0))

    s = layout.ours()
    if s.communicator.rank == 1:
        with refused(KeyError, "a mistake"):
            s.run(fn)
    else:
        with refused(CommunicationError, "(?s)rank 1 failed.*KeyError: 'a mistake'"):
            s.run(fn)
    drop(s)


@pytest.mark.parametrize("layout", CASES, ids=str)
@pytest.mark.parametrize("how", RUNS)
def test_a_rank_that_leaves_while_the_others_wait(layout, how):
    def alone(s, step):
        if s.communicator.rank == 1:
            time.sleep(0.5)
            raise KeyError("a mistake")
        step()

    with refused((KeyError, CommunicationError), "a mistake"), layout.ours() as s:
        alone(s, RUNS[how](lambda: s.run(lambda: here().all_reduce("SUM", tf.constant(1.0)))))
    drop(s)


def test_a_graph_that_fails_on_one_rank():
    with (
        refused(
            (tf.errors.InvalidArgumentError, CommunicationError),
            "too large|rank 1 failed with InvalidArgument",
        ),
        distribute.MirroredStrategy(["CPU:0"]) as s,
    ):

        @tf.function
        def step(n):
            tf.debugging.assert_less(n, 1, "too large")
            return s.run(lambda: here().all_reduce("SUM", tf.constant(1.0)))

        step(tf.constant(s.communicator.rank))
    drop(s)


def test_an_error_on_all_ranks_can_be_caught():
    def fn():
        raise ValueError("on all ranks")

    with distribute.MirroredStrategy(["CPU:0"]) as s:
        for run in (s.run, tf.function(s.run)):
            with refused(ValueError, "on all ranks"):
                run(fn)
            assert works(s)


BAD = {
    "no such device": (lambda: {"devices": ["CPU:9"]}, ValueError),
    "no such GPU": (lambda: {"devices": ["GPU:0"]}, ValueError),
    "no device at all": (lambda: {"devices": ["CPU"]}, ValueError),
    "a device twice": (lambda: {"devices": ["CPU:0", "CPU:0"]}, ValueError),
    "no devices": (lambda: {"devices": []}, ValueError),
    "a string": (lambda: {"devices": "CPU:0"}, TypeError),
    "a number": (lambda: {"devices": 3}, TypeError),
    "no CrossDeviceOps": (lambda: {"cross_device_ops": 3}, ValueError),
    "no such backend": (lambda: {"backend": "none"}, ValueError),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_arguments_on_all_ranks(what):
    bad, kind = BAD[what]
    with refused(kind, "device|cross_device_ops=|backend"):
        distribute.MirroredStrategy(**bad())


@pytest.mark.parametrize("what", [what for what in BAD if what != "no such backend"])
def test_bad_arguments_on_one_rank(what):
    bad, kind = BAD[what]
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        rank = s.communicator.rank
    with refused(kind if rank else (ValueError, CommunicationError), "."):
        distribute.MirroredStrategy(**(bad() if rank else {}))


def test_unequal_numbers_of_devices():
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        devices = TWO[: 1 + s.communicator.rank]
    for kind in (distribute.MirroredStrategy, distribute.CentralStorageStrategy):
        with refused(UsageError, r"\[1, 2\]"):
            kind(devices)


@pytest.mark.parametrize("options", [3, "RING", {"bytes_per_pack": 1}])
def test_wrong_communication_options(options):
    with refused(UsageError, "communication_options="):
        distribute.MultiWorkerMirroredStrategy(communication_options=options)


def test_communication_options():
    kind = distribute.experimental.CommunicationOptions
    ring = distribute.experimental.CommunicationImplementation.RING
    for options in (kind(), kind(bytes_per_pack=8), kind(implementation=ring)):
        with distribute.MultiWorkerMirroredStrategy(None, options) as s:
            assert works(s)


@takes_long()
def test_a_deadline():
    options = distribute.experimental.CommunicationOptions(timeout_seconds=1.0)
    s = distribute.MultiWorkerMirroredStrategy(communication_options=options)
    if s.communicator.rank == 0:
        with refused(CommunicationError, "rank 1"):
            s.run(lambda: here().all_reduce("SUM", tf.constant(1.0)))
    else:
        time.sleep(3.0)
        with refused(CommunicationError, "rank 0|broken"):
            for _ in range(2):  # what rank 0 gave for the first is still there
                s.run(lambda: here().all_reduce("SUM", tf.constant(1.0)))
    drop(s)


@pytest.mark.parametrize(
    "name", ["ReductionToOneDevice", "HierarchicalCopyAllReduce", "NcclAllReduce"]
)
@pytest.mark.parametrize("how", RUNS)
def test_cross_device_ops(name, how):
    for module in (distribute, tf.distribute):
        with distribute.MirroredStrategy(TWO, getattr(module, name)()) as s:
            assert works(s)
            step = RUNS[how](lambda s=s: s.run(lambda: here().all_reduce("MEAN", tf.ones([2]))))
            assert s.experimental_local_results(step())[1].numpy().tolist() == [1.0, 1.0]


def made(s):
    with s.scope():
        return tf.Variable(1.0)


@pytest.mark.parametrize("layout", CASES, ids=str)
def test_a_closed_strategy_refuses(layout):
    with layout.ours() as s:
        value = s.run(lambda: tf.ones([2]))
        variable = made(s)
    s.close()
    s.close()
    for call in (
        lambda: s.run(lambda: 1),
        lambda: made(s),
        lambda: s.reduce("SUM", value, axis=None),
        lambda: s.gather(value, axis=0),
    ):
        with refused(ClosedError, "closed"):
            call()
    variable.assign_add(1.0)
    assert variable.numpy() == 2.0  # what is trained is not lost


@takes_long()
def test_the_deadline_of_one_call_is_its_own():
    options = tf.distribute.experimental.CommunicationOptions(timeout_seconds=0.5)
    s = distribute.MirroredStrategy(["CPU:0"])
    if s.communicator.rank == 0:
        with refused(CommunicationError, "ranks that did not come: 1"):
            s.run(lambda: here().all_reduce("SUM", tf.ones([2]), options))
    else:
        time.sleep(2.5)  # the other asks for a second who else waits
    drop(s)
