"""One line says what to install without CuPy or a driver, or with several builds."""

import logging
from types import SimpleNamespace

import pytest

from mpistrat.collectives.arrays import cupy_installation, gpu_devices
from mpistrat.errors import BackendUnavailableError
from mpistrat.system import log


class CUDARuntimeError(RuntimeError):
    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


@pytest.fixture
def machine(monkeypatch):
    """Return a function that sets what is installed, and how CuPy answers."""

    def make(*builds, answer=None):
        found = [SimpleNamespace(name=name, version="14.2.0") for name in (*builds, "numpy", None)]
        monkeypatch.setattr(cupy_installation.metadata, "distributions", lambda: found)
        cupy_installation._builds.cache_clear()
        monkeypatch.setattr(log, "_once", set())

        def count():
            if isinstance(answer, Exception):
                raise answer
            return answer

        def cupy():
            if isinstance(answer, ImportError):
                raise answer
            runtime = SimpleNamespace(getDeviceCount=count, CUDARuntimeError=CUDARuntimeError)
            return SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))

        monkeypatch.setattr(gpu_devices, "_cupy", cupy)

    yield make
    cupy_installation._builds.cache_clear()


def refusal():
    with pytest.raises(BackendUnavailableError) as caught:
        gpu_devices.require(["GPU:0"])
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_no_cupy(machine):
    machine(answer=ImportError("No module named 'cupy'"))
    said = refusal()
    assert "No module named 'cupy'" in said
    assert "mpistrat[cuda] (cupy-cuda13x)" in said
    assert "mpistrat[rocm] (cupy-rocm-7-0)" in said
    assert "never both" in said


def test_a_build_for_other_gpus(machine):
    text = "\n=====\nCuPy failed to load libamdhip64.so.7: cannot open\n=====\n"
    machine("cupy-rocm-7-0", answer=ImportError(text))
    said = refusal()
    assert "(CuPy failed to load libamdhip64.so.7: cannot open)" in said
    assert "is cupy-rocm-7-0 14.2.0 the one for this machine's GPUs?" in said


@pytest.mark.parametrize(
    "answer",
    [ImportError("cannot import name 'x'"), CUDARuntimeError(35, "cudaErrorInsufficientDriver")],
)
def test_two_builds(machine, answer):
    machine("cupy-rocm-7-0", "cupy-cuda13x", answer=answer)
    said = refusal()
    assert "2 builds of CuPy are installed" in said
    assert "(cupy-cuda13x 14.2.0, cupy-rocm-7-0 14.2.0): uninstall all of them" in said


def test_two_builds_that_work_by_chance(machine):
    machine("cupy-rocm-7-0", "cupy-cuda13x", answer=1)
    told = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())
    logger = logging.getLogger("mpistrat")
    logger.addHandler(handler)
    try:
        for _ in range(2):
            gpu_devices.require(["GPU:0"])
    finally:
        logger.removeHandler(handler)
    [warning] = told
    assert "2 builds of CuPy" in warning


def test_libraries_that_use_cupy_are_no_builds_of_it(machine):
    machine("cupy-cuda13x", "cupy-xarray", "cupy-nvtx-tools", answer=1)
    assert cupy_installation.several() is None


def test_a_driver_that_is_too_old(machine):
    machine("cupy-cuda13x", answer=CUDARuntimeError(35, "cudaErrorInsufficientDriver: ..."))
    said = refusal()
    assert "cudaErrorInsufficientDriver" in said
    assert "too old for cupy-cuda13x 14.2.0" in said
    assert "580 or later" in said


def test_no_gpu(machine):
    machine("cupy-cuda13x", answer=CUDARuntimeError(100, "cudaErrorNoDevice"))
    assert "CUDA_VISIBLE_DEVICES" in refusal()
    machine("cupy-cuda13x", answer=CUDARuntimeError(999, "cudaErrorUnknown"))
    assert "nvidia-smi" in refusal()
