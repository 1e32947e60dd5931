"""Write the tables of docs/speed.md and the figures of README.md from recorded JSON lines.

The JSON lines are those of ``mpistrat.bench collectives --json``, one file for each MPI library
and number of ranks.

``python docs/speed/update.py``
    writes both pages from docs/speed/*.jsonl.
``python docs/speed/update.py --record PYTHON [PYTHON ...]``
    first measures again with each of these interpreters, one for each MPI library, on 2 and 4
    ranks. Needs a clean checkout, so that the commit in the recording is what was measured, and an
    idle machine.
``python docs/speed/update.py --check``
    changes nothing; exits with 1 where a page differs from the recordings.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RECORDINGS = Path(__file__).parent
PAGES = {"docs/speed.md", "README.md"}

_RANKS = (2, 4)
_SIZES = "64,4KiB,64KiB,1MiB,16MiB"
_NAMES = {64: "64 B", 4096: "4 KiB", 65536: "64 KiB", 1 << 20: "1 MiB", 16 << 20: "16 MiB"}
_JOBS = 5
_TIMEOUT_S = 600.0
_BEGIN, _END = "<!-- recorded: written by docs/speed/update.py -->", "<!-- end of recorded -->"

Record = Mapping[str, Any]
Key = tuple[str, int]


@dataclass(frozen=True)
class Recording:
    """The calls of some jobs alike: mpistrat's, and the MPI library's own.

    Attributes
    ----------
    file
        Name of the file.
    ours, new, theirs
        The records by operation and bytes: with ``out=``, with new results, and of MPI's own call
        through mpi4py.
    """

    file: str
    ours: Mapping[Key, Record]
    new: Mapping[Key, Record]
    theirs: Mapping[Key, Record]

    @property
    def run(self) -> Record:
        """What all records of the job have in common."""
        return next(iter(self.ours.values()))

    @property
    def library(self) -> str:
        """The MPI library and its version, as in ``MPICH 5.0``."""
        found = re.search(r"(MPICH|Open MPI)\D*(\d+\.\d+)", self.run["mpi"])
        if found is None:
            raise SystemExit(f"{self.file}: {self.run['mpi']!r} is neither MPICH nor Open MPI")
        return f"{found[1]} {found[2]}"


# ------------------------------------------------------------------------------------- read


def recordings(folder: Path = RECORDINGS) -> list[Recording]:
    """Return what is recorded, in the order of the files' names."""
    return [_recording(file) for file in sorted(folder.glob("*.jsonl"))]


def _recording(file: Path) -> Recording:
    ours: dict[Key, Record] = {}
    new: dict[Key, Record] = {}
    theirs: dict[Key, Record] = {}
    for record in _records(file):
        is_new = record["side"].endswith(", new")
        side = theirs if record["kind"] == "peer" else new if is_new else ours
        side[record["op"], record["bytes"]] = record
    if not ours or ours.keys() != theirs.keys():
        raise SystemExit(f"{file.name}: expected mpistrat's and mpi4py's times for equal sizes")
    return Recording(file.name, ours, new, theirs)


def _records(file: Path) -> list[Record]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


# ------------------------------------------------------------------------------------ write


def tables(recorded: Sequence[Recording]) -> str:
    """Return the part of docs/speed.md that is made from recordings."""
    return "\n".join(line for recording in recorded for line in _section(recording))


def _section(recording: Recording) -> Iterator[str]:
    run, library = recording.run, recording.library
    text = (
        f"{run['ranks']} ranks on {_machine(run)}, {run['date']}, commit {run['git'][:12]}, Python"
        f" {run['python']}, NumPy {run['numpy']}. Each figure is that of the median of {_JOBS}"
        f" jobs, in each the median of {run['rounds']} rounds or fewer:"
        f" [speed/{recording.file}](speed/{recording.file}). In the geometric mean"
        f" {_mean(recording.ours):.1f} times as fast, with new results {_mean(recording.new):.1f}."
    )
    title = f"### {library}, {run['ranks']} ranks"
    yield from (title, "", *textwrap.wrap(text, 99, break_long_words=False), "")
    sizes = sorted({nbytes for _, nbytes in recording.ours if nbytes})
    yield f"| call | {' | '.join(_NAMES[nbytes] for nbytes in sizes)} |"
    yield f"|---|{'---|' * len(sizes)}"
    for op in dict.fromkeys(op for op, _ in recording.ours):
        cells = [_cell(recording, (op, nbytes)) for nbytes in sizes]
        if (op, 0) in recording.ours:
            cells[0] = _cell(recording, (op, 0))
        yield f"| {op} | {' | '.join(cells)} |"
    yield ""


def _cell(recording: Recording, key: Key) -> str:
    """Return our time, and the speedups with ``out=`` and with a new result."""
    if key not in recording.ours:
        return ""
    found = [one[key] for one in (recording.ours, recording.new) if key in one]
    return ", ".join([_median(found[0]), *(f"{_speedup(one):.2f}" for one in found)])


def _speedup(record: Record) -> float:
    return float(record["speedup"]["mpi4py"])


def _mean(records: Mapping[Key, Record]) -> float:
    return statistics.geometric_mean(_speedup(one) for one in records.values())


def sentence(recorded: Sequence[Recording]) -> str:
    """Return the part of README.md that is made from recordings."""
    pairs = [one for one in recorded if one.run["ranks"] == min(_RANKS)]
    first, few, many = pairs[0], ("allreduce", min(_NAMES)), ("allreduce", max(_NAMES))
    theirs = (
        f"{one.library} {_median(one.theirs[few])} and {_median(one.theirs[many])}"
        for one in pairs
    )
    means = " and ".join(f"{_mean(one.ours):.1f}" for one in pairs)
    text = (
        f"A sum over {first.run['ranks']} ranks takes {_median(first.ours[few])} for"
        f" {_NAMES[few[1]]} and {_median(first.ours[many])} for {_NAMES[many[1]]} on"
        f" {first.run['cores']} cores; {', '.join(theirs)}. All collectives are"
        f" {means} times as fast (mean). [More, and how to measure yours](docs/speed.md)."
    )
    return "\n".join(textwrap.wrap(text, 119, break_long_words=False, break_on_hyphens=False))


def _machine(run: Record) -> str:
    return f"{run['cores']} cores of {run['host']} ({run['machine']})"


def _median(record: Record) -> str:
    return _time(record["time_us"]["median"])


def _time(time_us: float) -> str:
    """Return a time with two significant digits, in µs below 1000 of them, else in ms."""
    value, unit = (time_us, "µs") if time_us < 1000 else (time_us / 1000, "ms")
    digits = max(0, 1 - math.floor(math.log10(value))) if value > 0 else 0
    return f"{value:.{digits}f} {unit}"


def pages(root: Path, recorded: Sequence[Recording]) -> dict[Path, str]:
    """Return the content that each page should have."""
    parts = {"docs/speed.md": tables(recorded), "README.md": sentence(recorded)}
    return {root / page: _with_part(root / page, parts[page]) for page in sorted(PAGES)}


def _with_part(page: Path, part: str) -> str:
    before, begin, rest = page.read_text(encoding="utf-8").partition(f"{_BEGIN}\n")
    _, end, after = rest.partition(f"{_END}\n")
    if not begin or not end:
        raise SystemExit(f"{page}: expected the lines {_BEGIN!r} and {_END!r}")
    return f"{before}{begin}{part.rstrip()}\n{end}{after}"


# ----------------------------------------------------------------------------------- record


def record(pythons: Sequence[str]) -> None:
    """Measure with each interpreter, then replace the recordings of its MPI library."""
    _check_clean()
    with tempfile.TemporaryDirectory() as name:
        # Outside of the checkout until all are there: the first would make the next one dirty.
        measured = {}
        for python in pythons:
            for ranks in _RANKS:
                jobs = [Path(name) / f"{len(measured)}-{job}.jsonl" for job in range(_JOBS)]
                for file in jobs:
                    _measure(python, ranks, file)
                stem = re.sub(r"[ \d.]", "", _recording(jobs[0]).library).lower()
                measured[f"{stem}-{ranks}.jsonl"] = "".join(_medians(jobs))
        for file_name, text in measured.items():
            (RECORDINGS / file_name).write_text(text, encoding="utf-8")


def _medians(files: Sequence[Path]) -> Iterator[str]:
    """Yield, of each measurement, the record of the job with the median speedup, or time."""
    for records in zip(*map(_records, files), strict=True):
        ranked = sorted(records, key=_rank)
        yield json.dumps(ranked[len(ranked) // 2]) + "\n"


def _rank(record: Record) -> float:
    return record["speedup"].get("mpi4py") or record["time_us"]["median"]


def _check_clean() -> None:
    status = ["git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no"]
    if changed := subprocess.run(status, capture_output=True, text=True, check=True).stdout:
        raise SystemExit(f"commit first; the recording names the commit:\n{changed}")


def _measure(python: str, ranks: int, file: Path) -> None:
    mpirun = str(Path(python).with_name("mpirun"))
    command = [mpirun, "-n", str(ranks), *_options(mpirun), python]
    command += ["-m", "mpistrat.bench", "collectives", "--peers", "mpi4py", "--no-memcpy"]
    command += ["--ops", "all", "--new", "--bytes", _SIZES]
    command += ["--rounds", "31", "--seconds", "0.5", "--json", str(file)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=_TIMEOUT_S)


def _options(mpirun: str) -> list[str]:
    """Return what lets it start more ranks than there are cores."""
    version = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=True)
    return ["--oversubscribe"] if "Open MPI" in version.stdout else []


# ------------------------------------------------------------------------------------- main


def main() -> int:
    """Do what the command line says; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--record", nargs="+", metavar="PYTHON", help="measure with each first")
    parser.add_argument("--check", action="store_true", help="change nothing; compare the pages")
    parser.add_argument("--root", type=Path, default=ROOT, help="where the pages are")
    options = parser.parse_args()
    if options.record:
        record(options.record)
    folder = options.root / RECORDINGS.relative_to(ROOT)
    wanted = pages(options.root, recordings(folder))
    differing = [page for page, text in wanted.items() if page.read_text("utf-8") != text]
    if options.check:
        for page in differing:
            print(f"{page} differs from docs/speed/*.jsonl; run python docs/speed/update.py")
        return 1 if differing else 0
    for page in differing:
        page.write_text(wanted[page], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
