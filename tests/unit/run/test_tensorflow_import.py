"""The hook at the import of TensorFlow: what it exchanges then, and when it does nothing."""

import importlib
import importlib.util
import sys
from importlib.machinery import PathFinder

import pytest

from mpistrat.run import tensorflow_import

PARTS = "unchanged_programs.stand_in_modules", "thread_pools"
OWN = """
import sys
sys.modules["tensorflow"].told.append("{name}")
install = set_pools = lambda *share: sys.modules["tensorflow"].told.append(share)
"""


@pytest.fixture
def tensorflow(monkeypatch, tmp_path):
    """Stand-ins of TensorFlow, and of what is imported to exchange names in it."""
    home = tmp_path / "ours"
    (home / "unchanged_programs").mkdir(parents=True)
    (tmp_path / "tensorflow.py").write_text("told = []\n")
    (home / "__init__.py").write_text("import tensorflow\n")
    for name in PARTS:
        (home / f"{name.replace('.', '/')}.py").write_text(OWN.format(name=name))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setattr(tensorflow_import, "_OURS", "ours")
    for name in ("tensorflow", *(one for one in sys.modules if one.startswith("tensorflow."))):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield tmp_path / "tensorflow.py"
    for name in ("tensorflow", "ours", "ours.unchanged_programs", *(f"ours.{p}" for p in PARTS)):
        sys.modules.pop(name, None)


def test_names_are_exchanged_once_it_is_imported(tensorflow):
    tensorflow_import.exchange_at_import("share")
    hook = sys.meta_path[0]
    assert hook.find_spec("json") is None
    spec = importlib.util.find_spec("tensorflow")  # a program may ask whether it is there
    assert (spec.origin, "tensorflow" in sys.modules) == (str(tensorflow), False)
    import tensorflow as tf

    assert tf.told == [PARTS[0], (), PARTS[1], ("share",)]
    assert tf is sys.modules["tensorflow"]
    assert type(tf.__spec__.loader).__name__ == "SourceFileLoader"
    assert hook not in sys.meta_path


def test_threads_are_left_alone_where_ranks_share_no_cores(tensorflow):
    tensorflow_import.exchange_at_import(None)
    import tensorflow as tf

    assert tf.told == [PARTS[0], ()]


def test_names_are_exchanged_after_the_package_that_imports_it(tensorflow):
    (tensorflow.parent / "ours" / "__init__.py").write_text(
        "import tensorflow\ntensorflow.told.append('package')\n"
    )
    tensorflow_import.exchange_at_import("share")
    hook = sys.meta_path[0]
    ours = importlib.import_module("ours")
    tf = sys.modules["tensorflow"]
    assert tf.told == ["package", PARTS[0], (), PARTS[1], ("share",)]
    for module in (ours, tf):
        assert type(module.__spec__.loader).__name__ == "SourceFileLoader"
    assert hook not in sys.meta_path


def test_without_tensorflow_python_says_so(tensorflow, monkeypatch):
    tensorflow_import.exchange_at_import(None)
    without = staticmethod(lambda name, path=None, target=None: None)
    monkeypatch.setattr(PathFinder, "find_spec", without)
    with pytest.raises(ModuleNotFoundError, match="No module named 'tensorflow'"):
        import tensorflow as tf  # noqa: F401
