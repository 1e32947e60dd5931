"""CentralStorageStrategy keeps the contract, on every layout."""

import pytest

from mpistrat import CentralStorageStrategy
from mpistrat.testing.layouts import LAYOUTS, Layout
from mpistrat.testing.sets import takes_long, with_all
from mpistrat.testing.strategies.conformance import AllAreasConformance

SOME = LAYOUTS if with_all() else LAYOUTS[2:3]
ALONE = pytest.param(Layout(1, 1), marks=takes_long())


@pytest.mark.parametrize("layout", [ALONE, *SOME], ids=str)
class TestCentralStorage(AllAreasConformance):
    mirrors_variables = False

    def strategy(self, layout: Layout) -> CentralStorageStrategy:
        return CentralStorageStrategy(layout.device_names)
