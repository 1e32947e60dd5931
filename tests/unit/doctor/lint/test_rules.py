"""Each trap is found where it is, and programs that do right are left alone."""

import ast
import textwrap

import pytest

from mpistrat.doctor.lint.program import Program
from mpistrat.doctor.lint.rules import RULES

TF = "import tensorflow as tf\nimport horovod.tensorflow as hvd\nhvd.init()\n"
KERAS = (
    "import keras\nimport tensorflow as tf\nimport horovod.tensorflow.keras as hvd\nhvd.init()\n"
)


def found(text, environment=()):
    """Return the traps in a program: the rule, the outcome, and the part that it is about."""
    program = Program("p.py", text, dict(environment))
    return [
        (rule.name, trap.outcome.value, ast.unparse(trap.node))
        for rule in RULES
        for trap in rule.find(program)
        if program.uses_horovod
    ]


def only(text, environment=()):
    """Return the rule and the outcome of the only trap."""
    traps = found(text, environment)
    assert len(traps) == 1, traps
    return traps[0][:2]


SILENT, HANGS, FAILS = "silently wrong", "hangs", "fails"
TRAPS = [
    ("keras-optimizer", SILENT, KERAS + "o = hvd.DistributedOptimizer(keras.optimizers.SGD())"),
    ("keras-optimizer", SILENT, TF + "o = hvd.DistributedOptimizer(tf.keras.optimizers.SGD())"),
    ("keras-optimizer", SILENT, "import horovod.keras as h\nh.DistributedOptimizer(o)"),
    (
        "keras-optimizer",
        FAILS,
        KERAS + "o = hvd.DistributedOptimizer(keras.optimizers.SGD(), backward_passes_per_step=2)",
    ),
    ("keras-optimizer", SILENT, KERAS + "m = hvd.load_model('m.keras')"),
    ("keras-callbacks", FAILS, KERAS + "hvd.callbacks.BroadcastGlobalVariablesCallback(0)"),
    ("keras-callbacks", FAILS, KERAS + "hvd.callbacks.MetricAverageCallback()"),
    ("keras-callbacks", FAILS, KERAS + "hvd.callbacks.LearningRateScheduleCallback(0.1, 0.5)"),
    ("keras-callbacks", FAILS, KERAS + "hvd.callbacks.LearningRateWarmupCallback(0.1)"),
    ("keras-callbacks", FAILS, KERAS + "hvd.callbacks.BestModelCheckpoint()"),
    ("keras-layers", FAILS, TF + "hvd.SyncBatchNormalization()"),
    ("keras-layers", SILENT, KERAS + "keras.layers.BatchNormalization(synchronized=True)"),
    (
        "keras-variables",
        FAILS,
        KERAS
        + "from horovod.tensorflow import DistributedGradientTape\n"
        + "tape = DistributedGradientTape(tape)\n"
        + "tape.gradient(loss, keras.Sequential().trainable_variables)",
    ),
    (
        "keras-variables",
        FAILS,
        TF + "with hvd.DistributedGradientTape(tf.GradientTape()) as tape:\n"
        "    model = tf.keras.Model()\n"
        "tape.gradient(loss, model.trainable_weights)",
    ),
    ("keras-variables", FAILS, TF + "hvd.broadcast_variables(tf.keras.Model().variables, 0)"),
    (
        "keras-variables",
        FAILS,
        TF + "@tf.function\ndef f():\n"
        "    hvd.broadcast_variables(tf.keras.Model().variables, 0, inplace=True)",
    ),
    (
        "keras-variables",
        FAILS,
        TF + "o = tf.keras.optimizers.SGD()\nhvd.broadcast_variables(o.variables(), root_rank=0)",
    ),
    ("keras-variables", FAILS, TF + "hvd.broadcast_global_variables(0)"),
    ("dtypes", FAILS, TF + "hvd.allreduce(tf.cast(x, tf.bfloat16))"),
    ("dtypes", FAILS, TF + "x = tf.zeros(3, dtype=tf.complex64)\nhvd.allreduce(x)"),
    ("dtypes", FAILS, TF + "hvd.allreduce(x.astype('int16'), op=hvd.Sum)"),
    ("dtypes", FAILS, TF + "hvd.allreduce(tf.constant([True, False]), op=hvd.Max)"),
    ("dtypes", FAILS, TF + "hvd.broadcast(tf.complex(a, b), 0)"),
    ("dtypes", FAILS, TF + "hvd.allgather(tf.cast(x, 'bfloat16'))"),
    ("dtypes", FAILS, TF + "hvd.allreduce(1.0)"),
    ("dtypes", FAILS, TF + "hvd.allreduce(float(loss))"),
    ("dtypes", FAILS, KERAS + "keras.config.set_dtype_policy('bfloat16')\nhvd.rank()"),
    ("dtypes", SILENT, TF + "hvd.allreduce(tf.constant([1, 2]))"),
    ("dtypes", SILENT, TF + "hvd.allreduce(tf.cast(x, tf.int64), op=hvd.Average)"),
    (
        "compiled-functions",
        FAILS,
        TF + "@tf.function(jit_compile=True)\ndef f(x):\n    return hvd.allreduce(x)",
    ),
    (
        "compiled-functions",
        FAILS,
        TF + "def f(x):\n    return hvd.allreduce(x)\ng = tf.function(f, jit_compile=True)",
    ),
    (
        "compiled-functions",
        FAILS,
        TF + "class M(tf.keras.Model):\n    def train_step(self, data):\n"
        "        return hvd.allreduce(data)\nM().compile('sgd', jit_compile=True)",
    ),
    ("captured-tensors", FAILS, TF + "c = tf.ones(2)\nf = tf.function(lambda: hvd.allreduce(c))"),
    (
        "captured-tensors",
        FAILS,
        TF + "import numpy as np\nc = np.ones(2)\n"
        "@tf.function\ndef f():\n    return hvd.broadcast(c, 0)",
    ),
    ("some-ranks", HANGS, TF + "if hvd.rank() == 0:\n    hvd.allreduce(x)"),
    (
        "some-ranks",
        HANGS,
        TF + "rank = hvd.rank()\nis_chief = rank == 0\nif is_chief:\n    hvd.broadcast_object(x)",
    ),
    ("some-ranks", HANGS, TF + "y = hvd.allgather(x) if hvd.local_rank() else None"),
    (
        "some-ranks",
        HANGS,
        TF + "def f(x):\n    if hvd.rank():\n        return x\n    return hvd.allreduce(x)",
    ),
    (
        "some-ranks",
        HANGS,
        TF + "def mean(x):\n    return hvd.allreduce(x)\nif hvd.rank() == 0:\n    print(mean(x))",
    ),
    ("some-ranks", HANGS, TF + "import sys\nif hvd.rank():\n    sys.exit()\nhvd.allreduce(x)"),
    ("some-ranks", HANGS, TF + "hvd.rank() == 0 and hvd.allreduce(x)"),
    (
        "unused-results",
        HANGS,
        TF + "@tf.function\ndef f(x):\n    s = hvd.allreduce(x)\n"
        "    if hvd.rank() == 0:\n        tf.print(s)\n    return x",
    ),
    ("unused-results", SILENT, TF + "@tf.function\ndef f(x):\n    hvd.allreduce(x)\n    return x"),
    ("uneven-inputs", SILENT, TF + "hvd.allreduce(x)\nhvd.join()"),
    ("process-sets", FAILS, TF + "hvd.add_process_set([0, 1])"),
    ("elastic", FAILS, KERAS + "hvd.elastic.KerasState(model, batch=0)"),
    ("elastic", FAILS, TF + "hvd.elastic.TensorFlowKerasState(model, batch=0)"),
    ("elastic", FAILS, TF + "@hvd.elastic.run\ndef train(state):\n    pass"),
    ("start-and-end", FAILS, TF + "hvd.shutdown()\nhvd.init()"),
    ("start-and-end", FAILS, TF + "from mpi4py import MPI"),
    ("start-and-end", SILENT, "from mpi4py import MPI\n" + TF + "hvd.init(comm=MPI.COMM_SELF)"),
    ("launcher", FAILS, "import subprocess\nsubprocess.run(['horovodrun', '-np', '2', 'a.py'])"),
    ("launcher", FAILS, "import os\nos.system('horovodrun -np 2 python a.py')"),
    ("launcher", FAILS, "import horovod\nhorovod.run(f, np=2)"),
    ("launcher", FAILS, "from horovod.runner import run\nrun(f, np=2)"),
    ("timeline", FAILS, TF + "hvd.start_timeline('t.json')"),
]


@pytest.mark.parametrize(("rule", "outcome", "text"), TRAPS)
def test_a_trap_is_found(rule, outcome, text):
    assert only(text) == (rule, outcome)


def test_each_rule_has_a_trap_here_and_a_file_of_its_name():
    names = [rule.name for rule in RULES]
    assert {rule for rule, _, _ in TRAPS} == set(names)
    files = [rule.find.__module__.rpartition(".")[2] for rule in RULES]
    assert files == [name.replace("-", "_") for name in names]


def test_both_branches_in_another_order_are_found():
    text = TF + (
        "if hvd.rank() == 0:\n    x = hvd.allreduce(a)\n    y = hvd.allreduce(b)\n"
        "else:\n    y = hvd.allreduce(b)\n    x = hvd.allreduce(a)\n"
    )
    assert {trap[:2] for trap in found(text)} == {("some-ranks", SILENT)}
    assert len(found(text)) == 4


RIGHT = {
    "init, rank and broadcast": "print(hvd.rank(), hvd.size())\nhvd.broadcast(x, root_rank=0)",
    "a sum that is compared with the rank": (
        "if ready and hvd.allreduce(x) > 0 and hvd.rank() == 0:\n    print(x)"
    ),
    "a branch on the size": "if hvd.size() > 1:\n    hvd.allreduce(x)",
    "a file that one rank writes": "if hvd.rank() == 0:\n    model.save('m.keras')",
    "objects of the root": (
        "if hvd.rank() == 0:\n    o = hvd.broadcast_object(state)\n"
        "else:\n    o = hvd.broadcast_object(None)"
    ),
    "a function that all ranks call": (
        "def mean(x):\n    return hvd.allreduce(x)\nm = mean(x)\nif hvd.rank() == 0:\n    print(m)"
    ),
    "a function whose collective depends on an option": (
        "def mean(x, several):\n    return hvd.allreduce(x) if several else x\n"
        "if hvd.rank() == 0:\n    mean(x, False)"
    ),
    "join beside the others' collectives": (
        "if hvd.rank() == 0:\n    hvd.join()\n"
        "else:\n    hvd.allreduce(x, op=hvd.Sum)\n    hvd.join()"
    ),
    "a start that is expected to fail": (
        "with raises(ValueError):\n    hvd.init(comm=a)\nwith raises(ValueError):\n"
        "    hvd.init(comm=b)"
    ),
    "the word for the launcher": "print(name.endswith('horovodrun'))",
    "a process set": "if hvd.rank() in (0, 1):\n    hvd.allreduce(x, process_set=pairs)",
    "tape of TensorFlow's variables": (
        "v = tf.Variable(1.0)\nt = hvd.DistributedGradientTape(tf.GradientTape())\n"
        "t.gradient(loss, [v])"
    ),
    "tape of a module's variables": (
        "class Net(tf.Module):\n    pass\nnet = Net()\ntf.keras.utils.set_random_seed(1)\n"
        "t = hvd.DistributedGradientTape(tf.GradientTape())\n"
        "t.gradient(loss, net.trainable_variables)"
    ),
    "a bare tape beside": (
        "with tf.GradientTape() as tape:\n    pass\n"
        "tape.gradient(loss, tf.keras.Model().trainable_variables)"
    ),
    "broadcast of Keras's variables in a graph": (
        "@tf.function\ndef f():\n    hvd.broadcast_variables(tf.keras.Model().variables, 0)"
    ),
    "an optimizer of TensorFlow 1": (
        "o = tf.compat.v1.train.GradientDescentOptimizer(0.1)\nhvd.DistributedOptimizer(o)"
    ),
    "an optimizer of TensorFlow 1 under the same name": (
        "o = tf.train.AdamOptimizer(0.1)\no = hvd.DistributedOptimizer(\n    o, op=hvd.Average\n)"
    ),
    "floats": "hvd.allreduce(tf.cast(x, tf.float16))\nhvd.allreduce(tf.constant([1.0]))",
    "the sum of integers": "hvd.allreduce(tf.constant([1, 2]), op=hvd.Sum)",
    "short names of types": "import numpy as np\nhvd.allreduce(np.ones(2, 'f4'))",
    "types that are only moved": "hvd.broadcast(tf.cast(x, tf.bool), 0)",
    "a mixed policy": "tf.keras.mixed_precision.set_global_policy('mixed_bfloat16')",
    "a captured tensor with a name": (
        "c = tf.ones(2)\nf = tf.function(lambda: hvd.allreduce(c, name='c'))"
    ),
    "a captured variable": "c = tf.Variable(1.0)\nf = tf.function(lambda: hvd.allreduce(c))",
    "a parameter": "x = tf.ones(2)\nf = tf.function(lambda x: hvd.allreduce(x))",
    "a result that is returned": "@tf.function\ndef f(x):\n    s = hvd.allreduce(x)\n    return s",
    "join beside sums": "hvd.allreduce(x, op=hvd.Sum)\nhvd.join()",
    "dynamic process sets": "hvd.init(process_sets='dynamic')\nhvd.add_process_set([0])",
    "a state of variables": "hvd.elastic.TensorFlowState([v], step=0)",
    "text about horovodrun": "'''horovodrun -np 2 python train.py'''\nprint('use horovodrun')",
    "a timeline that is asked for": (
        "import os\nos.environ['HOROVOD_TIMELINE'] = 'DYNAMIC'\nhvd.start_timeline('t.json')"
    ),
    "start in one of two functions": (
        "def first():\n    hvd.init()\ndef second():\n    hvd.init(comm=c)"
    ),
}


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_what_works_is_left_alone(text):
    start = "" if "hvd.init" in text else "hvd.init()\n"
    assert found(f"import tensorflow as tf\nimport horovod.tensorflow as hvd\n{start}{text}") == []


def test_programs_for_pytorch_are_left_alone():
    assert found("import torch\nimport horovod\nimport horovod.torch as hvd\nhorovod.run(f)") == []


def test_mpi4py_before_horovod_keeps_mpi_running():
    assert found("from mpi4py import MPI\n" + TF + "hvd.shutdown()\nhvd.init()") == []


def test_environment_variables_count():
    sets, timeline = TF + "hvd.add_process_set([0])", TF + "hvd.start_timeline('t.json')"
    assert found(sets, {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}.items()) == []
    assert found(timeline, {"HOROVOD_TIMELINE": "DYNAMIC"}.items()) == []


OF_KERAS_3 = """
    model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD()))
    hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    hvd.callbacks.BestModelCheckpoint()
    hvd.elastic.KerasState(model, batch=0)
    from horovod.tensorflow import DistributedGradientTape, SyncBatchNormalization
    SyncBatchNormalization()
    DistributedGradientTape(tape).gradient(loss, model.trainable_variables)
"""
KERAS_2 = "import os\nos.environ['TF_USE_LEGACY_KERAS'] = '1'\n"


def test_keras_2_has_its_own_traps_only():
    text = KERAS + textwrap.dedent(OF_KERAS_3)
    assert len(found(text)) == 6
    assert found(KERAS_2 + text) == []
    assert found("import tf_keras\n" + text) == []
    assert found(text, {"TF_USE_LEGACY_KERAS": "1"}.items()) == []


def test_horovod_calls_keras_3s_backend_beside_keras_2():
    assert only(KERAS_2 + KERAS + "hvd.callbacks.MetricAverageCallback()")[1] == FAILS
    assert only(KERAS_2 + "import horovod.keras as h\nh.DistributedOptimizer(o)")[1] == SILENT


def test_keras_2s_optimizer_drops_the_sum():
    text = KERAS_2 + TF + "hvd.DistributedOptimizer(o, op=hvd.Sum)"
    assert only(text) == ("keras-optimizer", SILENT)
    assert found(text.replace("hvd.Sum", "hvd.Average")) == []
