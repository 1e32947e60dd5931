"""Open a page in Chromium without a screen, and return what it shows and complains of."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Shown", "chromium", "show"]

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_DEADLINE_S = 60
_CONSOLE = re.compile(r":CONSOLE[:(].*")

# Chromium prints the page's elements after it was loaded: what is measured becomes one of them.
_MEASURE = """<script>
window.addEventListener("load", () => {
  const images = [...document.images].map((image) => {
    const box = image.getBoundingClientRect();
    return {alt: image.alt, natural: image.naturalWidth, width: box.width, height: box.height};
  });
  const told = document.createElement("pre");
  told.id = "measured";
  told.textContent = btoa(unescape(encodeURIComponent(JSON.stringify({
    images: images, width: document.documentElement.scrollWidth, scripts: document.scripts.length,
    text: document.body.innerText}))));
  document.body.append(told);
});
</script>"""


@dataclass(frozen=True)
class Shown:
    """A page after it was loaded.

    Attributes
    ----------
    images
        Of each its alt text, the width of its file, and the width and height of its box.
    width
        Of the page, in a window of 1100 pixels.
    scripts
        How many scripts it has, one of which measures it.
    text
        That a reader sees.
    console
        The lines of its console.
    """

    images: list[dict[str, Any]]
    width: int
    scripts: int
    text: str
    console: list[str]


def chromium() -> str | None:
    """Return the path of Chromium; None if there is none."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


def show(page: Path, folder: Path) -> Shown:
    """Load a page, with a script that measures it; `folder` is for Chromium's own files."""
    program = chromium()
    assert program is not None
    copy = folder / "measured.html"
    copy.write_text(page.read_text(encoding="utf-8") + _MEASURE, encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    options += [f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr"]
    options += ["--window-size=1100,900", "--virtual-time-budget=10000", "--dump-dom"]
    done = subprocess.run(
        [program, *options, copy.as_uri()],
        capture_output=True,
        text=True,
        timeout=_DEADLINE_S,
        check=True,
    )
    return Shown(**_measured(done.stdout), console=_CONSOLE.findall(done.stderr))


def _measured(elements: str) -> dict[str, Any]:
    found = re.search(r'<pre id="measured">([^<]*)</pre>', elements)
    assert found is not None, f"Chromium did not load the page: {elements[:200]}"
    measured: dict[str, Any] = json.loads(base64.b64decode(found[1]))
    return measured
