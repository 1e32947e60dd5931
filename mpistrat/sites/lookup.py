"""Find a site's file by name: in the user's own folder, else among those of mpistrat."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path

from mpistrat.errors import UsageError
from mpistrat.sites.data_folder import slurm_folder
from mpistrat.sites.reading import read
from mpistrat.sites.schema import Site

__all__ = ["KnownSite", "file_of", "find", "is_host_of", "known", "of_host", "user_folder"]


@dataclass(frozen=True)
class KnownSite:
    """A site file that was found; `site` is None where `problem` says why it cannot be used."""

    name: str
    file: Path
    site: Site | None
    problem: str = ""

    @property
    def is_own(self) -> bool:
        """Whether the file is in the user's own folder."""
        return self.file.parent == user_folder()


def user_folder() -> Path:
    """Return the folder of the user's own site files; it need not exist."""
    config = os.environ.get("XDG_CONFIG_HOME", "") or "~/.config"
    # "~" stays, as a folder that is not there, for a user of a container who has no home.
    folder = Path(os.path.expanduser(config)).absolute()
    return folder / "mpistrat" / "sites"


def find(name: str) -> Site:
    """Return the site of that name, or the one that a file describes. **Local.**

    Parameters
    ----------
    name
        As ``mpistrat slurm sites`` lists it, or the path of a file, which ends in ``.toml``.

    Raises
    ------
    UsageError
        There is no such site (the closest names are listed), or its file has a mistake.
    """
    return read(file_of(name))


def file_of(name: str) -> Path:
    """Return the file of a site, which is not read.

    Raises
    ------
    UsageError
        There is none.
    """
    if name.endswith(".toml"):
        return Path(name).expanduser()
    files = dict(_files())
    if name in files:
        return files[name]
    close = get_close_matches(name.lower(), files, n=3, cutoff=0.5)
    meant = f"; did you mean {' or '.join(map(repr, close))}?" if close else ";"
    raise UsageError(
        f"no site is named {name!r}{meant} known are {', '.join(sorted(files))};"
        f" your own goes into {user_folder()}/<name>.toml"
    )


def known() -> list[KnownSite]:
    """Return all sites by name; one with a mistake in its file says so and hides no other."""
    return [_known(name, file) for name, file in sorted(_files())]


def of_host(host: str) -> str | None:
    """Return the name of the site that a host's name belongs to, or None."""
    for candidate in known():
        if candidate.site and is_host_of(candidate.site, host):
            return candidate.name
    return None


def is_host_of(site: Site, host: str) -> bool:
    """Return whether a host's name is one of a site's, as far as its file tells."""
    return any(fnmatchcase(host.lower(), pattern.value) for pattern in site.hosts)


def _files() -> Iterator[tuple[str, Path]]:
    """Yield each site's name and file once; the user's own hides the one of the same name."""
    files: dict[str, Path] = {}
    for folder in (slurm_folder() / "sites", user_folder()):
        files.update({file.stem: file for file in folder.glob("*.toml")})
    yield from files.items()


def _known(name: str, file: Path) -> KnownSite:
    try:
        return KnownSite(name, file, read(file))
    except UsageError as error:
        return KnownSite(name, file, None, str(error))
