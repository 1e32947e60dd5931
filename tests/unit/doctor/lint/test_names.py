"""Names are followed as Python does: aliases, scopes, imports that are tried."""

import pytest

from mpistrat.doctor.lint.program import Program


def uses(text):
    return [f"{use.module}:{use.name}" for use in Program("p.py", text, {}).uses]


@pytest.mark.parametrize(
    "text",
    [
        "import horovod.tensorflow.keras as hvd\nhvd.callbacks.X()",
        "import horovod.tensorflow.keras\nhorovod.tensorflow.keras.callbacks.X()",
        "from horovod.tensorflow import keras as k\nk.callbacks.X()",
        "from horovod.tensorflow.keras import callbacks\ncallbacks.X()",
        "from horovod.tensorflow.keras.callbacks import X as Y\nY()",
        "import horovod.tensorflow.keras as a\nb = a\nb.callbacks.X()",
        "import horovod.tensorflow.keras as a\nX = a.callbacks.X\nX()",
        "def f():\n    import horovod.tensorflow.keras as h\n    return h.callbacks.X",
        "import importlib\nh = importlib.import_module('horovod.tensorflow.keras')\nh.callbacks.X",
        "from horovod.tensorflow.keras import *\nprint(callbacks.X)",
        "try:\n    import horovod.tensorflow.keras as h\nexcept ImportError:\n    h = None\n"
        "h.callbacks.X",
        "def f():\n    global h\n    import horovod.tensorflow.keras as h\nh.callbacks.X",
        "import horovod.tensorflow.keras as h\nclass C(h.callbacks.X):\n    pass",
        "import horovod.tensorflow.keras as h\nmade = [h.callbacks.X for _ in range(3)]",
    ],
)
def test_a_name_of_horovod(text):
    assert set(uses(text)) == {"horovod.tensorflow.keras:callbacks.X"}


@pytest.mark.parametrize(
    "text",
    [
        "import horovod.torch as hvd\nhvd.DistributedOptimizer(o)",
        "def f(hvd):\n    return hvd.rank()",
        "import horovod.tensorflow as hvd\ndef f(hvd):\n    return hvd.rank()",
        "import horovod.tensorflow as hvd",
        "from .horovod import tensorflow as hvd\nhvd.rank()",
        "class A:\n    import horovod.tensorflow as hvd\n    def f(self):\n        hvd.rank()",
        "x = x.y()\nx.z()",
        "a = b\nb = a\na.c",
    ],
)
def test_no_name_of_horovod(text):
    assert uses(text) == []


def test_inner_modules_are_those_above():
    text = "from horovod.tensorflow.mpi_ops import rank\nrank()"
    assert uses(text) == ["horovod.tensorflow:rank"]


def test_the_last_import_before_counts():
    text = (
        "import horovod.tensorflow as hvd\nhvd.rank()\n"
        "import horovod.tensorflow.keras as hvd\nhvd.rank()"
    )
    assert uses(text) == ["horovod.tensorflow:rank", "horovod.tensorflow.keras:rank"]


def test_a_value_is_bound_after_it():
    text = (
        "import horovod.tensorflow as hvd\nhvd = hvd.elastic\nhvd.run; import numpy as hvd; hvd.x"
    )
    assert uses(text) == ["horovod.tensorflow:elastic", "horovod.tensorflow:elastic.run"]


@pytest.mark.parametrize(
    ("text", "is_use"),
    [
        ("import horovod.tensorflow as hvd\ntrain(hvd)", True),
        ("from horovod import keras as hvd\nself.hvd = hvd", True),
        ("import horovod.torch as hvd\ntrain(hvd)", False),
        ("from horovod import torch as hvd", False),
        ("import tensorflow", False),
    ],
)
def test_an_import_alone_is_a_use(text, is_use):
    assert Program("p.py", text, {}).uses_horovod is is_use


def test_the_source_of_a_part():
    program = Program("p.py", 'é = "\x0c"; f(\n    "ä", 1\n)  # end\n', {})
    assert [program.source(call) for call in program.calls] == ['f( "ä", 1 )']
    assert program.lines[2] == ")  # end"


@pytest.mark.parametrize(
    ("text", "is_legacy"),
    [
        ("import tf_keras", True),
        ("from tf_keras.layers import Dense", True),
        ("import tf_keras_vit", False),
        ("from .tf_keras import x", False),
    ],
)
def test_the_import_of_keras_2(text, is_legacy):
    assert Program("p.py", text, {}).is_legacy is is_legacy
