"""Write the tables of docs/speed.md and the figures of README.md from recorded JSON lines.

The JSON lines are those of ``mpistrat.bench collectives --json``, one file for each MPI library.

``python docs/speed/update.py``
    writes both pages from docs/speed/*.jsonl.
``python docs/speed/update.py --record PYTHON [PYTHON ...]``
    first measures again with each of these interpreters, one for each MPI library. Needs a clean
    checkout, so that the commit in the recording is what was measured, and an idle machine.
``python docs/speed/update.py --check``
    changes nothing; exits with 1 where a page differs from the recordings.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
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

_RANKS = 2
_SIZES = "8,4KiB,64KiB,1MiB,16MiB"
_NAMES = {8: "8 B", 4096: "4 KiB", 65536: "64 KiB", 1 << 20: "1 MiB", 16 << 20: "16 MiB"}
_TIMEOUT_S = 600.0
_BEGIN, _END = "<!-- recorded: written by docs/speed/update.py -->", "<!-- end of recorded -->"

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Recording:
    """The all-reduces of one job: mpistrat's, and the MPI library's own.

    Attributes
    ----------
    file
        Name of the file.
    ours, theirs
        The records by bytes; theirs is ``MPI_Allreduce`` through mpi4py.
    """

    file: str
    ours: Mapping[int, Record]
    theirs: Mapping[int, Record]

    @property
    def run(self) -> Record:
        """What all records of the job have in common."""
        return self.ours[min(self.ours)]

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
    records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    ours, theirs = (
        {record["bytes"]: record for record in records if record["kind"] == kind}
        for kind in ("backend", "peer")
    )
    if not ours or ours.keys() != theirs.keys():
        raise SystemExit(f"{file.name}: expected mpistrat's and mpi4py's times for equal sizes")
    return Recording(file.name, ours, theirs)


# ------------------------------------------------------------------------------------ write


def tables(recorded: Sequence[Recording]) -> str:
    """Return the part of docs/speed.md that is made from recordings."""
    return "\n".join(line for recording in recorded for line in _section(recording))


def _section(recording: Recording) -> Iterator[str]:
    run, library = recording.run, recording.library
    text = (
        f"{run['ranks']} ranks on {_machine(run)}, {run['date']}, commit {run['git'][:12]}, Python"
        f" {run['python']}, NumPy {run['numpy']}. Median, and least to 99th percentile, of"
        f" {run['rounds']} rounds or fewer: [speed/{recording.file}](speed/{recording.file})."
    )
    yield from (f"### {library}", "", *textwrap.wrap(text, 99, break_long_words=False), "")
    yield f"| size | mpistrat | {library} | times as fast |"
    yield "|---|---|---|---|"
    for nbytes, ours in recording.ours.items():
        faster = f"{ours['speedup']['mpi4py']:.1f}"
        cells = (_NAMES[nbytes], _spread(ours), _spread(recording.theirs[nbytes]), faster)
        yield f"| {' | '.join(cells)} |"
    yield ""


def sentence(recorded: Sequence[Recording]) -> str:
    """Return the part of README.md that is made from recordings."""
    first = recorded[0]
    few, many = min(first.ours), max(first.ours)
    theirs = (
        f"{one.library} takes {_median(one.theirs[few])} and {_median(one.theirs[many])}"
        for one in recorded
    )
    text = (
        f"A sum of float32 over {first.run['ranks']} ranks takes {_median(first.ours[few])} for"
        f" {few} bytes and {_median(first.ours[many])} for {_NAMES[many]} on"
        f" {_machine(first.run)}; {', '.join(theirs)}."
        " [More, and how to measure yours](docs/speed.md)."
    )
    return "\n".join(textwrap.wrap(text, 119, break_long_words=False, break_on_hyphens=False))


def _machine(run: Record) -> str:
    return f"{run['cores']} cores of {run['host']} ({run['machine']})"


def _median(record: Record) -> str:
    return _time(record["time_us"]["median"])


def _spread(record: Record) -> str:
    times = record["time_us"]
    return f"{_time(times['median'])} ({_time(times['min'])} to {_time(times['p99'])})"


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
    """Measure with each interpreter, then replace all recordings."""
    _check_clean()
    with tempfile.TemporaryDirectory() as name:
        # Outside of the checkout until all are there: the first would make the next one dirty.
        for number, python in enumerate(pythons):
            _measure(python, Path(name) / f"{number}.jsonl")
        measured = [(one.library, Path(name) / one.file) for one in recordings(Path(name))]
        for old in RECORDINGS.glob("*.jsonl"):
            old.unlink()
        for library, file in measured:
            stem = re.sub(r"[ \d.]", "", library).lower()
            shutil.move(file, RECORDINGS / f"{stem}.jsonl")


def _check_clean() -> None:
    status = ["git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no"]
    if changed := subprocess.run(status, capture_output=True, text=True, check=True).stdout:
        raise SystemExit(f"commit first; the recording names the commit:\n{changed}")


def _measure(python: str, file: Path) -> None:
    command = [str(Path(python).with_name("mpirun")), "-n", str(_RANKS), python]
    command += ["-m", "mpistrat.bench", "collectives", "--peers", "mpi4py", "--no-memcpy"]
    command += ["--bytes", _SIZES, "--rounds", "51", "--seconds", "5", "--json", str(file)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=_TIMEOUT_S)


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
