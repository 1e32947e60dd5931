"""The table of docs/tpu.md has each member of TPUStrategy once; the older ones are tested here."""

import re
from pathlib import Path

import pytest

tf = pytest.importorskip("tensorflow")

import mpistrat  # noqa: E402
from helpers.pretend.tpus import PretendResolver, initialized, traced  # noqa: E402
from helpers.tf.cases import drop, mirrored_on  # noqa: E402
from helpers.tf.process import four_cpus  # noqa: E402
from mpistrat.errors import UsageError  # noqa: E402 - TensorFlow may be missing
from mpistrat.tensorflow import TFBackedStrategy  # noqa: E402
from mpistrat.testing.sets import takes_long  # noqa: E402

four_cpus()

PAGE = Path(__file__).parents[3] / "docs" / "tpu.md"
OF_TPUS_ONLY = {"topology"}
OF_TPUS_ONLY |= {
    f"experimental_{how}_logical_device{s}"
    for how, s in (("assign_to", ""), ("split_to", "s"), ("replicate_to", "s"))
}


def public(*kinds):
    return {name for kind in kinds for name in dir(kind) if not name.startswith("_")}


def test_the_page_says_of_each_member_how_it_was_tried():
    table = re.findall(r"^\| .+", PAGE.read_text(), re.MULTILINE)
    rows = [row.strip("| ").split(" | ") for row in table[1:]]
    assert [how for _, how in rows] == [
        "executed, on a pretended TPU",
        "traced, graphs read",
        "untested",
    ]
    names = [name for members, _ in rows for name in re.findall(r"`(\w+)`", members)]
    assert len(names) == len(set(names))
    assert set(names) == public(mpistrat.TPUStrategy, tf.distribute.TPUStrategy)
    others = public(TFBackedStrategy, tf.distribute.MirroredStrategy)
    assert set(names) - others == OF_TPUS_ONLY


def of_tpu():
    return mpistrat.TPUStrategy(PretendResolver())


def of_mirrored():
    return TFBackedStrategy(lambda: mirrored_on(["CPU:0", "CPU:1"]))


@takes_long()
@pytest.mark.parametrize("make", [of_tpu, of_mirrored])
def test_members_of_older_versions(make):
    with initialized(), make() as s:
        with s.scope():
            variable = tf.Variable(1.0)
            with s.colocate_vars_with(variable):
                assert tf.Variable(2.0).numpy() == 2.0
        assert s.unwrap(variable) == s.experimental_local_results(variable)
        assert s.group(variable) is None
        assert s.configure() is None
        given = tf.compat.v1.ConfigProto()
        assert s.update_config_proto(given) is not given
        assert s.experimental_initialize() == s.experimental_finalize() == []
        rows = s.experimental_make_numpy_dataset([1.0, 2.0, 3.0, 4.0])
        iterator = s.make_dataset_iterator(rows.batch(2))
        iterator.initialize()
        assert s.reduce("SUM", iterator.get_next(), axis=0).numpy() == 3.0
        batches = s.make_input_fn_iterator(lambda _: rows.batch(2))
        assert s.reduce("SUM", batches.get_next(), axis=0).numpy() == 10.0

        def twice(x=2.0):
            return 2.0 * tf.convert_to_tensor(x)

        for call, args in ((s.experimental_run_v2, ()), (s.experimental_run, (iterator,))):
            if make is of_tpu:
                kinds = [
                    node.op for node in traced(lambda call=call, args=args: call(twice, *args))
                ]
                assert kinds.count("TPUReplicateMetadata") == 1
            else:
                assert len(s.unwrap(call(twice, *args))) == 2


@pytest.mark.mpi(ranks=2, timeout_s=30)
def test_older_iterators_are_refused_over_several_tpus():
    with initialized():
        s = of_tpu()
        rows = tf.data.Dataset.range(8).batch(4)
        with pytest.raises(UsageError, match=r"use strategy\.experimental_distribute_dataset"):
            s.make_dataset_iterator(rows)
        with pytest.raises(UsageError, match=r"use strategy\.distribute_datasets_from_function"):
            s.make_input_fn_iterator(lambda _: rows)
        drop(s)
