"""CentralStorageStrategy with one replica on a GPU, where there is one."""

import pytest

from helpers.gpu.one_gpu_conformance import OneGpuConformance
from mpistrat import CentralStorageStrategy
from mpistrat.collectives.arrays import gpu_devices
from mpistrat.errors import BackendUnavailableError


class TestOneGpu(OneGpuConformance):
    @pytest.fixture(autouse=True)
    def _needs_a_gpu(self):
        try:
            gpu_devices.require(["GPU:0"])
        except BackendUnavailableError as error:
            pytest.skip(str(error))

    def strategy(self):
        return CentralStorageStrategy(["GPU:0"])
