"""The public names of the package are these; adding or removing one is a decision."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import mpistrat

NAMES = """
Backend CallRecord Capabilities CentralStorageStrategy Communicator CrossDeviceOps
DistributedDataset DistributedIterator DistributedValues HierarchicalCopyAllReduce IndexedSlices
InputContext InputIterator InputOptions InputReplicationMode Mirrored MirroredStrategy
MultiWorkerMirroredStrategy NcclAllReduce OneDeviceStrategy ParameterServerStrategy PerReplica
Preempted PreemptionHandler ReduceOp ReductionToOneDevice ReplicaContext RunOptions Server
ShardedVariable Strategy
StrategyExtended Topology Variable VariableAggregation VariableSynchronization Work __version__
available_backends cluster_resolver coordinator data errors experimental
experimental_set_strategy get_replica_context get_strategy has_strategy in_cross_replica_context
nn optimizers random register_backend train variable_creator_scope
"""
WITH_TENSORFLOW = {"TPUStrategy"}  # had by name only: to import all names loads no TensorFlow


def typed_names():
    """Return {name: module} of what the ``if TYPE_CHECKING:`` block of the package imports."""
    tree = ast.parse(Path(mpistrat.__file__).read_text(encoding="utf-8"))
    blocks = [
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    return {
        alias.name: node.module
        for block in blocks
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_names_are_pinned():
    assert sorted(mpistrat.__all__) == sorted(NAMES.split())


def test_names_are_in_order():
    assert list(mpistrat.__all__) == sorted(mpistrat.__all__)


@pytest.mark.parametrize("name", NAMES.split())
def test_name_can_be_had(name):
    assert getattr(mpistrat, name) is not None


def test_dir_lists_them():
    assert dir(mpistrat) == sorted([*mpistrat.__all__, *WITH_TENSORFLOW])


def test_checkers_and_the_running_package_agree():
    homes = {name: f"mpistrat.{home}" for name, home in mpistrat._HOME_OF.items()}
    modules = dict.fromkeys(mpistrat._MODULES, "mpistrat")
    assert typed_names() == homes | modules
    known = set(mpistrat.__all__) | WITH_TENSORFLOW
    assert set(homes) | set(modules) | {"__version__"} == known


@pytest.mark.parametrize("name", sorted(set(mpistrat._HOME_OF) - WITH_TENSORFLOW))
def test_name_is_public_where_it_lives(name):
    home = importlib.import_module(f"mpistrat.{mpistrat._HOME_OF[name]}")
    assert name in home.__all__
    assert getattr(mpistrat, name) is getattr(home, name)


def test_unknown_name():
    with pytest.raises(AttributeError, match="module 'mpistrat' has no attribute 'NoSuchName'"):
        _ = mpistrat.NoSuchName


def test_without_tensorflow_an_error_says_what_to_install(monkeypatch):
    monkeypatch.delitem(vars(mpistrat), "TPUStrategy", raising=False)
    for name in [one for one in sys.modules if one.startswith("mpistrat.tensorflow")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(mpistrat.errors.BackendUnavailableError, match="pip install"):
        _ = mpistrat.TPUStrategy


def test_star_import_and_late_modules_in_a_fresh_process():
    code = (
        "from mpistrat import *; import sys; assert MirroredStrategy and errors.UsageError;"
        "assert 'mpi4py' not in sys.modules and 'tensorflow' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=60, check=False)
    assert done.returncode == 0
