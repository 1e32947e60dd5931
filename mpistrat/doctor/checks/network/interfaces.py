"""Check that NCCL would choose a network interface that reaches other nodes, and a fast one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mpistrat.doctor.check import Check, Problem, Verdict, failure, warning
from mpistrat.doctor.here import Here
from mpistrat.doctor.job.job import Job, by_value
from mpistrat.doctor.not_here import NotHere

__all__ = ["CHECK", "Interface", "Network", "chosen", "judge"]

_CLASS = Path("/sys/class/net")
_INFINIBAND, _LOOPBACK = 32, 772  # of linux/if_arp.h
_LOCAL = ("lo", "docker", "virbr", "veth", "cni", "br-")
_VARIABLE = "NCCL_SOCKET_IFNAME"
_MUCH_SLOWER = 4


@dataclass(frozen=True)
class Interface:
    """A network interface that is up; its speed in Mb/s, 0 where the driver does not say."""

    name: str
    kind: int = 1
    speed: int = 0

    @property
    def is_local(self) -> bool:
        """Whether it reaches no other machine: loopback, bridges of containers."""
        return self.kind == _LOOPBACK or self.name.startswith(_LOCAL)

    @property
    def is_fast(self) -> bool:
        """Whether it belongs to a high-speed network: InfiniBand or Slingshot."""
        return self.kind == _INFINIBAND or self.name.startswith("hsn")


@dataclass(frozen=True)
class Network:
    """The interfaces of a rank's node, and what its environment says about them."""

    interfaces: tuple[Interface, ...]
    wanted: str = ""


def _measure(here: Here) -> Network:
    if not _CLASS.is_dir():
        raise NotHere("no /sys/class/net")
    folders = sorted(filter(Path.is_dir, _CLASS.iterdir()), key=_place)
    found = [_interface(folder) for folder in folders]
    up = tuple(interface for interface in found if interface is not None)
    return Network(up, here.environment.get(_VARIABLE, ""))


def _place(folder: Path) -> tuple[int, str]:
    """Return the place of an interface in the kernel's order, in which NCCL looks at them."""
    index = _text(folder / "ifindex")
    return int(index) if index.isdigit() else 0, folder.name


def _interface(folder: Path) -> Interface | None:
    """Return an interface that is up; the state of loopback and tunnels is "unknown"."""
    if _text(folder / "operstate") not in ("up", "unknown"):
        return None
    speed, kind = _text(folder / "speed"), _text(folder / "type")
    return Interface(
        folder.name, int(kind) if kind.isdigit() else 1, int(speed) if speed.isdigit() else 0
    )


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:  # of loopback, and of interfaces that are down
        return ""


def chosen(network: Network) -> tuple[Interface, ...]:
    """Return the interfaces that NCCL would take, by its rules.

    Without the variable those of InfiniBand; else all but loopback and Docker's; else Docker's,
    and at last loopback. The variable has names or their beginnings; ``=`` asks for the whole
    name, and ``^`` means all but these.
    """
    if network.wanted:
        return _named(network)
    for names in (("ib",), None, ("docker",), ("lo",)):
        found = tuple(i for i in network.interfaces if _is_among(i.name, names))
        if found:
            return found
    return ()


def _is_among(name: str, beginnings: tuple[str, ...] | None) -> bool:
    if beginnings is None:
        return not name.startswith(("docker", "lo"))
    return name.startswith(beginnings)


def _named(network: Network) -> tuple[Interface, ...]:
    text = network.wanted
    is_exclusion = text.startswith("^")
    text = text.removeprefix("^")
    is_exact = text.startswith("=")
    names = [name for name in text.removeprefix("=").split(",") if name]

    def matches(name: str) -> bool:
        return name in names if is_exact else name.startswith(tuple(names))

    return tuple(i for i in network.interfaces if matches(i.name) != is_exclusion)


def judge(facts: Mapping[int, Network], job: Job) -> Verdict:
    """Find ranks whose NCCL would take no interface, a local one, a slow one, or another one."""
    problems: list[Problem] = []
    for network, ranks in by_value(facts).items():
        problems += _problems(network, ranks, job)
    names = {rank: tuple(i.name for i in chosen(network)) for rank, network in facts.items()}
    choices = by_value(names)
    if len(choices) > 1 and not problems:
        problems.append(_unequal(choices, job))
    shown = ", ".join(next(iter(choices))) or "none"
    variable = facts[min(facts)].wanted
    return Verdict(
        shown + (f" ({_VARIABLE}={variable})" if variable else ""), problems=tuple(problems)
    )


def _problems(network: Network, ranks: Sequence[int], job: Job) -> Iterator[Problem]:
    found, who = chosen(network), job.who(ranks)
    report = failure if len(job.nodes) > 1 else warning
    right = _right(network.interfaces)
    line = f"export {_VARIABLE}={','.join(right)}" if right else f"unset {_VARIABLE}"
    there = ", ".join(interface.name for interface in network.interfaces)
    if not found:
        yield report(
            f"{_VARIABLE}={network.wanted} names none of {there} for {who}",
            "an interface that each node has, and that is up",
            "NCCL fails to start without one",
            line,
        )
    elif found[0].is_local and (network.wanted or len(job.nodes) > 1):
        takes = f"{_VARIABLE}={network.wanted} makes NCCL take" if network.wanted else "NCCL takes"
        yield report(
            f"{takes} {found[0].name} for {who}, of {there}",
            "an interface that reaches the other nodes",
            "name the right one, or exclude all local ones: ^docker,lo,virbr,veth",
            line,
        )
    elif (fast := _much_faster(network, found)) and network.wanted:
        yield warning(
            f"{_VARIABLE}={network.wanted} makes NCCL take {found[0].name} for {who}, though"
            f" {fast} is there",
            "the fast network, of which sockets are several times slower than this",
            "name the fast interface",
            line,
        )


def _much_faster(network: Network, found: Sequence[Interface]) -> str:
    """Return an interface that is much faster than those chosen, or ""."""
    if any(interface.is_fast for interface in found):
        return ""
    best = max(interface.speed for interface in found)
    for other in network.interfaces:
        if other.is_fast or (best and other.speed >= _MUCH_SLOWER * best and not other.is_local):
            return other.name
    return ""


def _right(interfaces: Sequence[Interface]) -> list[str]:
    """Return the names of the fastest interfaces that reach other machines."""
    usable = [interface for interface in interfaces if not interface.is_local]
    fast = [interface.name for interface in usable if interface.is_fast]
    return fast or [i.name for i in sorted(usable, key=lambda i: -i.speed)[:1]]


def _unequal(choices: Mapping[tuple[str, ...], Sequence[int]], job: Job) -> Problem:
    shown = "; ".join(f"{job.who(ranks)}: {', '.join(names)}" for names, ranks in choices.items())
    common = set.intersection(*(set(names) for names in choices))
    return warning(
        f"NCCL would take unequal interfaces: {shown}",
        "the same ones on all nodes",
        "name one that all nodes have",
        f"export {_VARIABLE}={min(common)}" if common else "",
    )


CHECK = Check(
    name="network.interfaces",
    title="network interfaces",
    source="NVIDIA/nccl#1581, #286; horovod/horovod#700",
    measure=_measure,
    judge=judge,
)
