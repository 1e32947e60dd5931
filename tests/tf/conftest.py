"""Import TensorFlow without packages that Keras can do without, here and on ranks."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

HIDDEN = Path(__file__).with_name("hidden_from_keras")

with pytest.MonkeyPatch.context() as first_import, contextlib.suppress(ImportError):
    first_import.syspath_prepend(HIDDEN)
    first_import.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    # It is imported once a process: what Keras can do without is hidden now or never.
    import tensorflow as tf  # noqa: F401


@pytest.fixture(scope="module", autouse=True)
def without_what_keras_can_do_without() -> Iterator[None]:
    """Hide scikit-learn, SciPy, Matplotlib: 2 of the 5 s that importing TensorFlow takes."""
    paths = [str(HIDDEN), os.environ.get("PYTHONPATH", "")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
        patch.syspath_prepend(HIDDEN)  # the ranks that tests run on have this process's paths
        yield
