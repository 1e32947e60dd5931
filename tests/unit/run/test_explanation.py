"""``mpistrat run`` warns of private names in a program, and of programs without a strategy."""

import json
import logging
import os
import subprocess
import sys
import types

import pytest

from mpistrat.cluster.resolvers import tf_config_of_ranks
from mpistrat.cluster.resolvers.tf_config_of_ranks import JobRoles
from mpistrat.cluster.topology import Topology
from mpistrat.run import explanation
from mpistrat.run.explanation import private_imports

PRIVATE = """
import tensorflow as tf
from tensorflow.python.distribute import values, mirrored_strategy as m
def f():
    import tensorflow.python.distribute.distribute_lib
from tensorflow import distribute
from .tensorflow.python.distribute import x
"""


def test_imports_past_the_public_names():
    home = "tensorflow.python.distribute."
    found = [(3, home + "mirrored_strategy"), (3, home + "values"), (5, home + "distribute_lib")]
    assert private_imports(PRIVATE) == found
    assert private_imports("x = (") == []


def test_they_are_warned_of(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("mpistrat"), "propagate", True)
    explanation.warn_of_private_imports(PRIVATE, "train.py")
    assert len(caplog.records) == 3
    assert "train.py:3 imports tensorflow.python.distribute.values" in caplog.text


def test_ranks_that_know_nothing_of_each_other(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("mpistrat"), "propagate", True)
    uses = types.SimpleNamespace(found=list)
    monkeypatch.setitem(sys.modules, "mpistrat.tensorflow.unchanged_programs.uses", uses)
    for size, modules, is_noted in ((1, {"tensorflow": uses}, False), (2, {}, False)):
        assert noted(size, modules, caplog, monkeypatch) == is_noted
    assert noted(3, {"tensorflow": uses}, caplog, monkeypatch)
    assert "each of the 3 ranks ran all of it" in caplog.text
    uses.found = lambda: ["a strategy"]
    assert not noted(3, {"tensorflow": uses}, caplog, monkeypatch)


def noted(size, modules, caplog, monkeypatch):
    topology = Topology.from_hosts(0, ["host"] * size)
    monkeypatch.setattr(tf_config_of_ranks, "_current", [JobRoles(topology)])
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    before = len(caplog.records)
    explanation.note_without_strategy()
    return len(caplog.records) > before


def test_a_program_without_strategies_is_explained(tmp_path):
    (tmp_path / "train.py").write_text("import part\n")
    (tmp_path / "part.py").write_text("if 0:\n    import tensorflow.python.distribute.values\n")
    env = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    done = subprocess.run(
        [sys.executable, "-m", "mpistrat", "run", "--explain", "train.py"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=tmp_path,
        env=env,
    )
    assert done.stderr.splitlines() == [
        "mpistrat run: rank 0 of 1",
        "  TF_CONFIG: worker 0 of 1 worker",
        "  nothing was exchanged: the program used none of the names",
        "  part.py:2: tensorflow.python.distribute.values is TensorFlow's own",
    ]


@pytest.mark.parametrize("given", [None, {"cluster": {"ps": ["a:1"], "worker": ["a:2"]}}])
def test_a_config_of_the_environment(given, tmp_path):
    env = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    if given is not None:
        env["TF_CONFIG"] = json.dumps(given)
    text = "import json, os; print(json.loads(os.environ['TF_CONFIG'])['task']['type'])"
    done = subprocess.run(
        [sys.executable, "-m", "mpistrat", "run", "-c", text],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=tmp_path,
        env=env,
    )
    assert done.stdout == ("worker\n" if given is None else "chief\n")
    assert ("is replaced by what MPI says, with 1 ps" in done.stderr) == (given is not None)
