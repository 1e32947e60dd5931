"""Open what carries arrays between the GPUs of a call: the best that all ranks can open."""

from __future__ import annotations

from typing import TypeAlias

from mpistrat.collectives.backends.base import Backend, Steps
from mpistrat.collectives.backends.gpu.all_or_none import opened, said
from mpistrat.collectives.backends.gpu.carriers.carrier import Carrier
from mpistrat.collectives.backends.gpu.carriers.nccl import Nccl
from mpistrat.collectives.backends.gpu.carriers.one_shot import OneShotAllreduce
from mpistrat.collectives.backends.gpu.carriers.peer_memory import PeerMemory
from mpistrat.collectives.backends.gpu.carriers.staged import Staged
from mpistrat.collectives.backends.gpu.choice import choose, lacking_nccl, why_no_one_shot
from mpistrat.collectives.backends.gpu.facts import Facts, exchange, facts
from mpistrat.collectives.backends.gpu.memory.registered import Regions
from mpistrat.collectives.backends.gpu.memory.slabs import Slabs
from mpistrat.collectives.backends.gpu.streams import TransferStream
from mpistrat.collectives.backends.gpu.tuning import GpuTuning, agreed
from mpistrat.errors import BackendUnavailableError
from mpistrat.system.log import get_logger, warn_once

__all__ = ["Opened", "Opening"]

_LOG = get_logger(__name__)

Opened: TypeAlias = Carrier | OneShotAllreduce


class Opening:
    """Opens a carrier for one GPU of each rank. **Collective.**

    Parameters
    ----------
    host
        The backend over which the ranks agree.
    device
        Index of this rank's GPU.
    stream
        Its transfer stream.

    Attributes
    ----------
    under_way
        What is being opened, or None.
    may_shorten
        Whether short arrays may go another way than by the best carrier (short_arrays/).
    are_apart
        Whether each rank has a GPU of its own.
    """

    def __init__(self, host: Backend, device: int, stream: TransferStream) -> None:
        self._host, self._device, self._stream = host, device, stream
        self._everyone: list[Facts] = []
        self._tuning = GpuTuning()
        self.under_way: Opened | None = None
        self.may_shorten = self.are_apart = False

    def best(self) -> Steps:
        """Return the best carrier that all ranks can open.

        Raises
        ------
        BackendUnavailableError
            There is none; the same on all ranks.
        """
        self._everyone = yield from exchange(self._host, facts(self._device))
        names = choose(self._everyone)
        self.are_apart = len(set(self._gpus())) == self._host.size
        lacking = lacking_nccl(self._everyone)
        if lacking is not None:
            warn_once(_LOG, "no gpu nccl", f"arrays on GPUs are not carried by 'nccl': {lacking}")
        self._tuning = yield from agreed(self._host, self._everyone)
        tried = []
        for name in names:
            carrier = self._make(name)
            reasons = yield from self._opened(carrier)
            if not reasons:
                warn_once(_LOG, f"gpu {name}", f"arrays on GPUs are carried by {name!r}", "INFO")
                if isinstance(carrier, Nccl):
                    carrier.short = yield from self._short()
                # Who asks for mapped memory by its name gets it for short arrays, too.
                is_asked = self._everyone[0].carrier == "peer_memory"
                self.may_shorten = name != "nccl" and not is_asked and self._host.size > 1
                return carrier
            tried.append(f"not by {name!r}: {said(reasons)}")
            warn_once(_LOG, f"no gpu {name}", f"arrays on GPUs are carried {tried[-1]}")
        raise BackendUnavailableError(f"arrays on GPUs cannot be carried: {'. '.join(tried)}")

    def _make(self, name: str) -> Carrier:
        buffer_bytes = self._tuning.buffer_bytes
        if name == "peer_memory":
            slabs = Slabs(self._host, self._everyone, 4 * self._tuning.mapped_bytes)
            regions = Regions(self._host, self._everyone)
            most = self._tuning.whole_bytes
            return PeerMemory(self._host, slabs, regions, self._stream, most, self._gpus())
        if name == "nccl":
            return Nccl(self._host, self._stream, self._device, self._make("staged"))
        return Staged(self._host, self._stream, buffer_bytes)

    def _gpus(self) -> list[int]:
        """Return the number of each rank's GPU, from 0 in the order of their first ranks."""
        buses = [(one.host, one.bus) for one in self._everyone]
        numbers = {bus: number for number, bus in enumerate(dict.fromkeys(buses))}
        return [numbers[bus] for bus in buses]

    def _short(self) -> Steps:
        """Return what all-reduces short arrays in NCCL's place, or None."""
        why = why_no_one_shot(self._everyone)
        if why is None:
            most_bytes = self._tuning.one_shot_bytes
            short = OneShotAllreduce(self._host, self._everyone, self._stream, most_bytes)
            reasons = yield from self._opened(short)
            if not reasons:
                return short
            why = said(reasons)
        text = f"short all-reduces on GPUs go by NCCL, as long ones: {why}"
        warn_once(_LOG, f"no one-shot {why}", text, "INFO")
        return None

    def _opened(self, carrier: Opened) -> Steps:
        """Open a carrier on all ranks; return why that failed, by rank, and close it if it did."""
        self.under_way = carrier
        reasons = yield from opened(self._host, carrier)
        self.under_way = None
        return reasons
