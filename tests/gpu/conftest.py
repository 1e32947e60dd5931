"""The tests below this folder share jobs of ranks, and share none with other tests.

They need CuPy, and a GPU or pretended ones (pretend/README.md). Where there is no CuPy all of them
are skipped, also those that need no more than a compiler: they run where the others do.
"""

from importlib.util import find_spec
from pathlib import Path

import pytest

_WHY = "needs CuPy; pip install -e '.[mpich,test-gpu]' in an environment of its own"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests of this folder in environments for other tests."""
    if find_spec("cupy") is not None:
        return
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=_WHY))
