"""Draw the parts of a training step's time as stacked bars, by number of ranks."""

from __future__ import annotations

from collections.abc import Sequence

from mpistrat.bench.report.analysis.measurements import Measurement, groups, options_of
from mpistrat.bench.report.figures.style import below, looks_of, new_figure
from mpistrat.bench.report.file_names import named
from mpistrat.bench.report.section import Figure, Table
from mpistrat.bench.report.units import format_batch, format_time, plain, unit_of

__all__ = ["TRAINING", "families", "step_parts", "training_parts", "training_title"]

TRAINING = ("train", "strong", "weak")
"""The cases that time steps of training, rank by rank."""

_PARTS = {
    "compute": "computation",
    "communication": "exposed communication",
    "input": "input",
    "idle": "idle, waiting for slower ranks",
}


def families(measurements: Sequence[Measurement]) -> list[list[Measurement]]:
    """Return the measurements of each case, network and batch that tell the parts of a step."""
    chosen = [m for m in measurements if m.case in TRAINING and m.get("parts_us")]
    found = list(groups(chosen, lambda m: (training_title(m), options_of(m.point))).values())
    for members in found:
        members.sort(key=lambda m: (m.ranks, m.nodes))
    return sorted(found, key=lambda members: (-len(members), members[0].case))


def training_title(m: Measurement) -> str:
    """Return what was trained as a line, without its ranks."""
    batch = f"batch {format_batch(m.get('rank_batch'))} a rank"
    if m.case == "strong":
        batch = f"global batch {format_batch(m.get('global_batch'))}"
    return plain(f"{m.case}: {m.get('network')} ({m.get('family')}), {batch}", 120)


def training_parts(m: Measurement) -> list[object]:
    """Return the parts of a file name that tell what was trained."""
    batch = m.get("global_batch") if m.case == "strong" else m.get("rank_batch")
    family = "" if m.get("family") == "arrays" else m.get("family")
    return [m.case, m.get("network"), family, f"batch-{format_batch(batch)}"]


def step_parts(members: Sequence[Measurement]) -> Figure:
    """Draw a bar for each number of ranks, with the parts on top of each other."""
    drawing, (axes,) = new_figure(max(5.4, min(9.6, 3.4 + 0.8 * len(members))), 4.1)
    looks = looks_of(_PARTS)
    factor, unit = unit_of(sum(_part(m, part) for part in _PARTS) for m in members)
    bottoms = [0.0] * len(members)
    for part in _PARTS:
        heights = [_part(m, part) / factor for m in members]
        axes.bar(range(len(members)), heights, 0.62, bottom=bottoms, **looks[part].bars())
        bottoms = [low + height for low, height in zip(bottoms, heights, strict=True)]
    axes.set_ylim(0, max(bottoms) * 1.06 or 1.0)
    axes.set_xticks(range(len(members)), [_layout(m) for m in members])
    axes.set_xlabel("ranks")
    axes.set_xlim(-0.75, len(members) - 0.25)
    axes.set_title(f"Parts of a step, {unit}")
    axes.grid(visible=False, axis="x")
    below(drawing, axes.containers, list(_PARTS.values()), columns=2)
    title = f"Parts of a step, {training_title(members[0])}"
    caption = (
        "Medians over steps of the mean over ranks. Exposed communication is the least time that"
        " any rank spends in the collectives of the step; what others spend there above that is"
        " idle. A bar is of a mean rank, and need not add up to the time of a step, which is that"
        " of the slowest rank."
    )
    name = named("step-parts", *training_parts(members[0]))
    return Figure(name, title, _alt(members, title), caption, drawing, _table(members, title))


def _part(m: Measurement, part: str) -> float:
    return max(0.0, float(m.get("parts_us").get(part) or 0.0))


def _layout(m: Measurement) -> str:
    return str(m.ranks) if m.nodes == 1 else f"{m.ranks}\n({m.nodes} nodes)"


def _table(members: Sequence[Measurement], title: str) -> Table:
    rows = []
    for m in members:
        parts = [_part(m, part) for part in _PARTS]
        whole = sum(parts) or 1.0
        cells = [f"{format_time(part)} ({part / whole:.0%})" for part in parts]
        rows.append([str(m.ranks), str(m.nodes), *cells])
    return Table(title, ("ranks", "nodes", *_PARTS.values()), rows)


def _alt(members: Sequence[Measurement], title: str) -> str:
    last = members[-1]
    shares = [f"{label} {format_time(_part(last, part))}" for part, label in _PARTS.items()]
    return f"Stacked bars by ranks. {title}. On {last.ranks} ranks: {', '.join(shares)}."
