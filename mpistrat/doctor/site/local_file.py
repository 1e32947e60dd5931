"""Write a copy of a site's file with what the machine says, for the user's own folder."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import tomlkit

import mpistrat
from mpistrat.doctor.job.job import Job
from mpistrat.doctor.job.launcher import library_name
from mpistrat.errors import UsageError
from mpistrat.sites import lookup
from mpistrat.sites.reading import read
from mpistrat.system.files.atomic_files import replace_whole

__all__ = ["corrected", "measured_by", "write_local"]

_SOURCE = "doctor"


def write_local(file: Path, corrections: Mapping[str, Any], title: str, date: dt.date) -> Path:
    """Write a corrected copy into the user's folder, where it goes before the shipped file.

    Parameters
    ----------
    file
        The site's file, which is left as it is unless it is the user's own.
    corrections
        Values by their keys, ``{"node.cores": 64}``.
    title
        Of the source of these values.
    date
        On which they were measured.

    Returns
    -------
    Path
        The file that was written.

    Raises
    ------
    UsageError
        The corrected file would break a rule of the schema, or the user has no folder; nothing
        is written.
    """
    text = corrected(file.read_text(encoding="utf-8"), corrections, title, date)
    with tempfile.TemporaryDirectory(prefix="mpistrat-site-") as folder:
        draft = Path(folder) / file.name
        draft.write_text(text, encoding="utf-8")
        read(draft)  # the schema's rules
    target = lookup.user_folder() / file.name
    if "~" in target.parts:
        raise UsageError(
            f"{target}: this user has no home folder; name one by XDG_CONFIG_HOME=<folder>"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    replace_whole(target, text.encode())
    return target


def measured_by(job: Job) -> str:
    """Return the title of the source: this command, its machine, and the versions there."""
    slurm = f", Slurm {job.slurm}" if job.slurm else ""
    library = f", {library_name(job.library)}" if job.library else ""
    return f"mpistrat doctor {mpistrat.__version__} on {job.hosts[0]}{slurm}{library}"


def corrected(text: str, corrections: Mapping[str, Any], title: str, date: dt.date) -> str:
    """Return the text of a site's file with other values; comments and order stay."""
    document = tomlkit.parse(text)
    for key, value in corrections.items():
        _set(document, key.split("."), value)
    if corrections:
        source = {"title": title, "date": date, "by": "measured"}
        document["sources"][_SOURCE] = _inline(source)
    sources: Any = document["sources"]
    used = set(_used_sources(document.unwrap()))
    for name in [name for name in sources if name not in used]:
        del sources[name]
    return tomlkit.dumps(document)


def _set(table: MutableMapping[str, Any], key: Sequence[str], value: Any) -> None:
    """Set a value and its source; what the file said stays as the reason."""
    for name in key[:-1]:
        if name not in table:
            table[name] = tomlkit.table()
        table = table[name]
    last = key[-1]
    if "value" in table:  # a detail of a value, such as storage.node_local.kind
        table[last], table["source"] = value, _SOURCE
        return
    content = {"value": value, "source": _SOURCE}
    before = table.get(last)
    if before is not None:
        said = before["value"]
        content["reason"] = f"the file said {said.unwrap() if hasattr(said, 'unwrap') else said}"
    table[last] = _inline(content)


def _inline(content: Mapping[str, Any]) -> Any:
    """Return an inline table with the spaces that the shipped files have."""
    plain = {name: list(v) if isinstance(v, tuple) else v for name, v in content.items()}
    pairs = ", ".join(f"{name} = {tomlkit.item(v).as_string()}" for name, v in plain.items())
    return tomlkit.parse(f"table = {{ {pairs} }}")["table"]


def _used_sources(value: object) -> Iterator[str]:
    """Yield the source of each value below."""
    if isinstance(value, Mapping):
        if isinstance(source := value.get("source"), str):
            yield source
        for item in value.values():
            yield from _used_sources(item)
    elif isinstance(value, list):
        for item in value:
            yield from _used_sources(item)
