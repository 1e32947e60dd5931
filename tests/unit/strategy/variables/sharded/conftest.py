"""The variable in parts that tests of all its sides take."""

import pytest

from helpers.strategy.sharded_variables import make
from mpistrat import MirroredStrategy


@pytest.fixture(params=["plain", "mirrored"])
def w(request):
    if request.param == "plain":
        yield make()
        return
    with MirroredStrategy(["CPU:0", "CPU:1"]) as strategy, strategy.scope():
        yield make()
