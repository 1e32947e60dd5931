"""`import mpistrat` is cheap: numpy and the standard library, nothing else, and no MPI."""

import os
import subprocess
import sys

LIST_FOREIGN = """
import sys
import numpy
before = set(sys.modules)
import mpistrat
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(new - set(sys.stdlib_module_names) - {"mpistrat", "numpy"}))
"""


def test_import_loads_no_third_party_package_but_numpy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIST_FOREIGN], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def test_a_folder_of_that_name_beside_the_program_is_not_taken_for_it(tmp_path):
    """As a clone is, for programs in the folder that it was made in."""
    (tmp_path / "mpistrat").mkdir()
    (tmp_path / "train.py").write_text("import mpistrat; print(mpistrat.MirroredStrategy)")
    # Without what the tests' own path adds: an installed package is found by site-packages.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, "train.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
