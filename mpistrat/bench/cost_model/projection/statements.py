"""Collect sentences on what breaks first, sorted by the number of ranks at which they begin."""

from __future__ import annotations

from collections.abc import Mapping

from mpistrat.bench.cost_model.fitting.fit import MachineFit
from mpistrat.bench.cost_model.fitting.measurements import command_for
from mpistrat.bench.cost_model.fitting.normal_form import NormalForm
from mpistrat.bench.cost_model.formulas.layout import Node
from mpistrat.bench.cost_model.projection.algorithms import parameter_servers
from mpistrat.bench.cost_model.projection.breaking import Statement, network_statements
from mpistrat.bench.cost_model.projection.served import Saturation, ServedCall
from mpistrat.bench.cost_model.projection.step import StepWork
from mpistrat.bench.cost_model.projection.thresholds import MOST_RANKS
from mpistrat.bench.cost_model.readable import bytes_text, count_text, seconds_text

__all__ = ["statements"]

_SEVERAL_SERVERS = 8


def statements(
    fit: MachineFit,
    work: StepWork,
    node: Node,
    served: Mapping[ServedCall, Saturation],
    others: Mapping[str, NormalForm],
    has_servers: bool = False,
) -> tuple[list[str], list[str]]:
    """Return sentences, the first of which says what breaks first; and what never happens.

    Parameters
    ----------
    has_servers
        Whether the step is also projected with parameter servers.

    Returns
    -------
    tuple
        The sentences, and the events that do not happen up to `MOST_RANKS`.
    """
    found = [*_served(served), *_growing(others)]
    if fit.has_network:
        found += network_statements(fit, work, node)
        several = (1, _SEVERAL_SERVERS) if has_servers else ()
        found += [_saturation(fit, work, servers) for servers in several]
    else:
        command = command_for(2, 2)
        found.append(Statement(f"the network was not measured; measure it by: {command}"))
    found.sort(key=lambda one: (one.ranks is None, one.ranks or 0))
    breaking = [one for one in found if one.breaks and one.ranks is not None]
    first = [f"What breaks first: {one.text}" for one in breaking[:1]]
    rest = [one.text for one in found if one.happens and one not in breaking[:1]]
    return [*first, *rest], [one.text for one in found if not one.happens]


def _saturation(fit: MachineFit, work: StepWork, servers: int) -> Statement:
    """Say when the links of servers are busy all the time: with how many workers that train."""
    served_s = fit.seconds(parameter_servers(work.nbytes, 1, 1, True).only("wire_bytes")) / servers
    step_s = work.alone_s + fit.seconds(parameter_servers(work.nbytes, 1, servers, True))
    workers = max(step_s / served_s, 1.0)
    who = "one parameter server saturates"
    if servers > 1:
        who = f"{servers} parameter servers saturate"
    return Statement(
        f"{who} at {count_text(workers)} worker{'' if round(workers) == 1 else 's'} (step:"
        f" {work.title}; it pulls and pushes {bytes_text(work.nbytes)})",
        workers + servers,
    )


def _served(served: Mapping[ServedCall, Saturation]) -> list[Statement]:
    """Say it of measured functions on servers."""
    found = []
    for call, one in served.items():
        if one.served_s == 0:
            text = f"{call}: no limit seen up to {one.most} workers"
            found.append(Statement(text, None, breaks=False))
        else:
            text = (
                f"{call}: saturates at {count_text(one.workers)} workers, with a function every"
                f" {seconds_text(one.served_s)} (measured up to {one.most} workers)"
            )
            found.append(Statement(text, one.workers + call.servers + 1))
    return found


def _growing(others: Mapping[str, NormalForm]) -> list[Statement]:
    """Say which parts without a formula grow with the ranks."""
    found = []
    for what, form in others.items():
        if form.grows:
            seconds = seconds_text(form.value(MOST_RANKS))
            text = (
                f"{what} grows with the ranks as {form} s: {seconds} at {MOST_RANKS:,} ranks"
                f" (measured up to {form.most})"
            )
            found.append(Statement(text, None))
    return found
