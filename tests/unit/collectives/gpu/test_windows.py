"""Windows hold every element of every block once, aligned, within their buffers."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mpistrat.collectives.backends.gpu.carriers.windows import Blocks, windows


@given(
    counts=st.lists(st.integers(0, 50), min_size=1, max_size=5),
    itemsize=st.sampled_from([1, 2, 4, 8, 16]),
    buffer_bytes=st.integers(128, 512),
)
def test_all_elements_once_and_in_order(counts, itemsize, buffer_bytes):
    memory = np.arange(sum(counts) * itemsize, dtype=np.uint8)
    array = memory.view(np.dtype((np.void, itemsize)))
    blocks = Blocks(array, counts)
    found = [[] for _ in counts]
    for window in windows(max(counts), itemsize, len(counts), buffer_bytes):
        pieces = blocks.pieces(window)
        assert [piece.size for piece in pieces] == window.lengths(counts)
        assert sum(piece.nbytes for piece in pieces) <= buffer_bytes
        assert window.start * itemsize % 16 == 0 or window.length == 1
        for mine, piece in zip(found, pieces, strict=True):
            mine.append(piece.tobytes())
    ends = np.cumsum(counts)
    for mine, end, count in zip(found, ends, counts, strict=True):
        assert b"".join(mine) == array[end - count : end].tobytes()
