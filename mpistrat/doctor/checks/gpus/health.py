"""Check that the driver of the GPUs works, and that their memory and clocks are well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mpistrat.doctor.check import Check, Problem, Verdict, failure, warning
from mpistrat.doctor.gpus.driver import visible
from mpistrat.doctor.gpus.nvml import Health, health
from mpistrat.doctor.here import Here
from mpistrat.doctor.job.job import Job
from mpistrat.doctor.not_here import NotHere

__all__ = ["CHECK", "Driver", "judge"]

_MEANINGS = {
    -1: "the driver of NVIDIA is loaded, but libnvidia-ml.so.1 is not there",
    9: "the driver is not loaded",
    15: "a GPU is lost (NVML error 15)",
    18: "the driver's library and the kernel's module differ in version (NVML error 18)",
}
_HARMLESS = ("power cap",)


@dataclass(frozen=True)
class Driver:
    """The status of NVML's start, the health of the GPUs of one rank, and their driver's error."""

    status: int
    gpus: tuple[Health, ...] = ()
    error: str = ""


def _measure(_: Here) -> Driver:
    buses: tuple[str, ...] = ()
    error = ""
    try:
        buses = tuple(gpu.bus for gpu in visible())
    except NotHere:
        pass  # there may be a driver without its library, which the next lines find
    except OSError as reason:
        error = str(reason)
    try:
        return Driver(*health(buses), error)
    except NotHere:
        if not error:
            raise
        return Driver(0, (), error)


def judge(facts: Mapping[int, Driver], job: Job) -> Verdict:
    """Find nodes whose driver or GPUs are broken."""
    problems: list[Problem] = []
    seen: set[tuple[str, str]] = set()
    for rank, driver in facts.items():
        host = job.hosts[rank]
        if (driver.status or driver.error) and (host, "") not in seen:
            seen.add((host, ""))
            meaning = _MEANINGS.get(driver.status, driver.error or f"NVML error {driver.status}")
            problems.append(failure(f"{host}: {meaning}", "a driver that works", *_exclude(host)))
        for gpu in driver.gpus:
            if (host, gpu.bus) not in seen:
                seen.add((host, gpu.bus))
                problems += _of_gpu(host, gpu)
    count = sum(len({gpu.bus for gpu in driver.gpus}) > 0 for driver in facts.values())
    return (
        Verdict(f"driver and GPUs of {count} ranks are well", problems=tuple(problems))
        if (not problems)
        else Verdict(f"{len(problems)} fault{'s' * (len(problems) > 1)}", problems=tuple(problems))
    )


def _of_gpu(host: str, gpu: Health) -> Iterator[Problem]:
    if gpu.uncorrected:
        yield failure(
            f"{host}: {gpu.uncorrected} uncorrected errors in the memory of GPU {gpu.bus}",
            "none",
            *_exclude(host),
        )
    if gpu.retired_pages:
        yield warning(
            f"{host}: GPU {gpu.bus} has retired {gpu.retired_pages} pages of its memory",
            "none",
            *_exclude(host),
        )
    if slow := [reason for reason in gpu.throttled if reason not in _HARMLESS]:
        yield warning(
            f"{host}: GPU {gpu.bus} runs slowly: {', '.join(slow)}",
            "full clocks",
            *_exclude(host),
        )


def _exclude(host: str) -> tuple[str, str]:
    return (
        "leave the node out, and report it to the site",
        f"#SBATCH --exclude={host.partition('@')[0]}",
    )


CHECK = Check(
    name="gpus.health",
    title="GPU health",
    source="facebookresearch/gcm; Azure/azurehpc-health-checks",
    measure=_measure,
    judge=judge,
)
