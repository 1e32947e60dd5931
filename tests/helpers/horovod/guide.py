"""The code of docs/from-horovod.md: its blocks, what they say they print, and a program of them.

``python -m helpers.horovod.guide SIDE`` runs the blocks of one side, and prints what each of them
printed as a line of JSON.
"""

import contextlib
import io
import json
import os
import re
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "from-horovod.md"
SIDES = ("horovod", "mpistrat")
SAYS = "#> "
_BLOCK = re.compile(r"^```python (\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^### (.+)$", re.MULTILINE)
RESULT = "of a block: "


@dataclass(frozen=True)
class Pair:
    """Two blocks of the page that do the same.

    Attributes
    ----------
    name
        The heading above, and the number of the pair below it.
    code
        By side.
    differs
        Whether the page says that their outcomes differ.
    """

    name: str
    code: dict[str, str]
    differs: bool

    def says(self, side: str, rank: int) -> list[str]:
        """Return the lines that a rank prints, as the comments of the block say."""
        comments = [line.partition(SAYS)[2] for line in self.code[side].splitlines()]
        by_rank = [comment.split("|") for comment in comments if comment]
        lines = [one[rank if len(one) > 1 else 0].strip() for one in by_rank]
        return [line for line in lines if line]


def pairs(page: str) -> Iterator[Pair]:
    """Yield the pairs of blocks in the order of the page."""
    begin = 0
    blocks = [found for found in _BLOCK.finditer(page) if found[1] in SIDES]
    for left, right in zip(blocks[::2], blocks[1::2], strict=True):
        if (left[1], right[1]) != SIDES:
            raise ValueError(f"these blocks are no pair: {left[0]} {right[0]}")
        heading = _HEADING.findall(page[: left.start()])[-1]
        name = f"{heading} {sum(1 for _ in _HEADING.finditer(page, begin, left.start()))}"
        differs = "<!-- differs -->" in page[begin : left.start()]
        yield Pair(name, {"horovod": left[2], "mpistrat": right[2]}, differs)
        begin = right.end()


def run(side: str) -> None:
    """Run the blocks of a side, one after the other, and print what each of them printed."""
    names: dict[str, object] = {"__name__": "__main__"}
    for number, pair in enumerate(pairs(PAGE.read_text())):
        # In files, where TensorFlow finds the source of functions.
        file = Path(f"{side}_{number}_of_process_{os.getpid()}.py").absolute()
        file.write_text(pair.code[side])
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            try:
                exec(compile(pair.code[side], file, "exec"), names)
            except Exception as error:  # noqa: BLE001 - the page says which
                output.write(f"{type(error).__name__}\n")
                traceback.print_exc()
        lines = output.getvalue().splitlines()
        # In one piece: the ranks share a pipe.
        sys.stdout.write(f"{RESULT}{json.dumps([number, lines])}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    run(sys.argv[1])
