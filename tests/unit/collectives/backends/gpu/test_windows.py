"""Windows hold every element of every block once, aligned, within their buffers."""

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from mpistrat.collectives.backends.gpu.carriers.windows import Blocks, windows


@given(
    counts=st.lists(st.integers(0, 50), min_size=1, max_size=5),
    itemsize=st.sampled_from([1, 2, 4, 8, 16]),
    buffer_bytes=st.integers(128, 512),
)
def test_all_elements_once_and_in_order(counts, itemsize, buffer_bytes):
    array = SimpleNamespace(data=SimpleNamespace(ptr=1000), itemsize=itemsize)
    blocks = Blocks(array, counts)
    found = [[] for _ in counts]
    for window in windows(max(counts), itemsize, len(counts), buffer_bytes):
        parts = blocks.parts(window)
        assert [part.nbytes for part in parts] == [n * itemsize for n in window.lengths(counts)]
        assert sum(part.nbytes for part in parts) <= buffer_bytes
        assert window.start * itemsize % 16 == 0 or window.length == 1
        for mine, part in zip(found, parts, strict=True):
            mine.extend(range(part.address, part.address + part.nbytes))
    begin = 1000
    for mine, count in zip(found, counts, strict=True):
        assert mine == list(range(begin, begin + count * itemsize))
        begin += count * itemsize
