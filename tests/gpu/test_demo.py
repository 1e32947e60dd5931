"""The demo with its replicas on GPUs: `mpirun -n 2 python -m mpistrat.demo --device gpu`."""

import re

import pytest

from helpers.gpu.devices import needs_gpus
from mpistrat.testing.launcher import JobResult, run_job
from mpistrat.testing.sets import repeats, takes_long

pytest.importorskip("cupy")  # first: scikit-learn takes 2 s
pytest.importorskip("sklearn")
pytest.importorskip("typer")


def demo(*arguments: str, gpus: str) -> JobResult:
    """Run the demo on two ranks that can see some of the GPUs."""
    env = {"HIP_VISIBLE_DEVICES": gpus, "CUDA_VISIBLE_DEVICES": gpus}
    return run_job(["-m", "mpistrat.demo", *arguments], 2, timeout_s=150, env=env)


def report_of(result: JobResult) -> str:
    return result.check().ranks[0].stdout


def epochs_of(report: str) -> list[tuple[str, str]]:
    """Return each epoch's loss and test accuracy, as they are printed."""
    return re.findall(r"loss ([\d.]+) +test accuracy +([\d.]+)%", report)


@takes_long()
@pytest.mark.deadline(300)  # kernels are compiled, and the demo's first user compiles most
@pytest.mark.parametrize("gpus", ["0", "0,1"])
def test_it_learns_as_on_cpus(gpus: str) -> None:
    """Two ranks that share a GPU, or have one each; without --device they take them, too."""
    needs_gpus(len(gpus.split(",")))
    options = ("--epochs", "2")
    chosen = ("--device", "gpu") if gpus == "0" else ()
    report = report_of(demo(*chosen, *options, gpus=gpus))
    assert "replicas: 2, ranks: 2" in report
    assert "on GPUs" in report
    assert "all replicas hold the same bits: 2 x" in report
    on_cpus = report_of(demo("--device", "cpu", *options, gpus=gpus))
    assert "on GPUs" not in on_cpus
    assert len(epochs_of(report)) == 2
    assert epochs_of(report) == epochs_of(on_cpus)


@takes_long()
@pytest.mark.deadline(300)
def test_a_replica_without_an_image() -> None:
    """Of 1438 images, batches of 479 leave one, for two replicas."""
    needs_gpus(1)
    options = ("--epochs", "1", "--batch-size", "479")
    found, wanted = (
        report_of(demo("--device", one, *options, gpus="0")) for one in ("gpu", "cpu")
    )
    assert len(epochs_of(found)) == 1
    assert epochs_of(found) == epochs_of(wanted)


@takes_long()
@pytest.mark.deadline(300)
# On a GPU each it has the losses of the CPUs, as test_it_learns_as_on_cpus shows.
@pytest.mark.parametrize("gpus", ["0", pytest.param("0,1", marks=repeats())])
def test_it_learns_the_digits(gpus: str) -> None:
    needs_gpus(len(gpus.split(",")))
    report = report_of(demo("--device", "gpu", gpus=gpus))
    assert len(epochs_of(report)) == 20
    assert float(epochs_of(report)[-1][1]) >= 98
    assert "all replicas hold the same bits: 2 x" in report


def test_no_gpu_is_one_line() -> None:
    result = demo("--device", "gpu", gpus="")
    assert result.returncode == 2
    (line,) = [line for rank in result.ranks for line in rank.stderr.splitlines()]
    assert re.match(r"mpistrat.demo: devices=\['GPU:0'\]: .*use CPU devices", line)
    assert [rank.stdout for rank in result.ranks] == ["", ""]
