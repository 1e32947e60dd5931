"""What the processes that these tests start import."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

HIDDEN = Path(__file__).with_name("hidden_from_keras")


@pytest.fixture(scope="module", autouse=True)
def without_what_keras_can_do_without() -> Iterator[None]:
    """Hide scikit-learn and SciPy: 1 s of the 3.5 s that importing TensorFlow takes, each time."""
    paths = [str(HIDDEN), os.environ.get("PYTHONPATH", "")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
        patch.syspath_prepend(HIDDEN)  # the ranks that tests run on have this process's paths
        yield
