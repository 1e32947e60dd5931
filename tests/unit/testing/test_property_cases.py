"""The random cases of the conformance tests."""

import numpy as np
import pytest

from mpistrat import built_in_sizes
from mpistrat.testing.backends.properties import random_case
from mpistrat.testing.backends.samples import DTYPES


@pytest.mark.parametrize("dtype", DTYPES)
def test_long_cases_are_longer_than_a_header_in_each_dtype(dtype):
    random = np.random.default_rng(2026)
    cases = [random_case(random) for _ in range(1000)]
    long = [case for case in cases if case.dtype == dtype and case.shape and case.shape[-1] > 5]
    sizes = [nbytes for case in long if (nbytes := case.array(0).nbytes)]
    assert sizes
    assert min(sizes) > built_in_sizes.INLINE_BYTES
