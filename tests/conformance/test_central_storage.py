"""CentralStorageStrategy keeps the contract, on every layout."""

import pytest

from mpistrat import CentralStorageStrategy
from mpistrat.testing.layouts import LAYOUTS, Layout
from mpistrat.testing.strategies.all_areas import AllAreasConformance


@pytest.mark.parametrize("layout", [Layout(1, 1), *LAYOUTS], ids=str)
class TestCentralStorage(AllAreasConformance):
    mirrors_variables = False

    def strategy(self, layout: Layout) -> CentralStorageStrategy:
        return CentralStorageStrategy(layout.device_names)
