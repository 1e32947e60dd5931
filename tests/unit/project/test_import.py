"""`import mpistrat` is cheap: numpy and the standard library, nothing else, and no MPI."""

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
