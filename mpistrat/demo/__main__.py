"""Start the demo, or say which package it needs."""

from __future__ import annotations

import importlib.util
import sys

_NEEDED = {"sklearn": "scikit-learn", "typer": "typer", "rich": "rich"}


def main() -> None:
    """Run the command line of the demo; exit with 2 where a package of its extra is missing."""
    missing = [name for module, name in _NEEDED.items() if not importlib.util.find_spec(module)]
    if missing:
        print(
            f"mpistrat.demo needs {', '.join(missing)}, not installed here; "
            'run: pip install "mpistrat[demo]"',
            file=sys.stderr,
        )
        sys.exit(2)
    from mpistrat.demo.command import app

    app(prog_name="python -m mpistrat.demo")


if __name__ == "__main__":
    main()
