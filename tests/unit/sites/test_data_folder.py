"""The folder slurm/ is found in a checkout, in an installed package, and in a wheel."""

import ast
import importlib.util
from pathlib import Path

import pytest

from mpistrat.errors import UsageError
from mpistrat.sites import data_folder

ROOT = Path(__file__).parents[3]


def loaded_from(package):
    """Return the module as if the package were installed in that folder."""
    file = package / "sites" / "data_folder.py"
    file.parent.mkdir(parents=True)
    file.write_text(Path(data_folder.__file__).read_text())
    spec = importlib.util.spec_from_file_location("installed_data_folder", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_checkout():
    assert data_folder.slurm_folder() == ROOT / "slurm"


def test_an_installed_package(tmp_path):
    module = loaded_from(tmp_path / "mpistrat")
    (tmp_path / "mpistrat" / "slurm" / "sites").mkdir(parents=True)
    (tmp_path / "slurm" / "sites").mkdir(parents=True)
    assert module.slurm_folder() == tmp_path / "mpistrat" / "slurm"


def test_a_package_without_it_beside_another_named_slurm(tmp_path):
    module = loaded_from(tmp_path / "mpistrat")
    (tmp_path / "slurm").mkdir()
    with pytest.raises(UsageError, match="install mpistrat anew"):
        module.slurm_folder()


def test_a_wheel_has_all_of_it():
    tree = ast.parse((ROOT / "setup.py").read_text())
    scope = {}
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AugAssign)) and "_SOURCES" in ast.unparse(node):
            exec(ast.unparse(node), scope)
    packed = {path for pattern in scope["_SOURCES"] for path in ROOT.glob(pattern)}
    wanted = {path for path in (ROOT / "slurm").rglob("*") if path.is_file()}
    assert wanted
    assert wanted <= packed
    endings = (ROOT / "MANIFEST.in").read_text().partition("recursive-include slurm ")[2]
    assert {f"*{path.suffix}" for path in wanted} <= set(endings.splitlines()[0].split())
