"""The codes that tell ranks where arrays are in registered memory."""

import pytest

from mpistrat.collectives.backends.gpu.memory.registered import (
    APART,
    NOWHERE,
    PLAIN,
    Place,
    code_of,
    places_of,
)

MOST = (1 << 37) - 1


@pytest.mark.parametrize("offset", [0, 1, 4096, MOST])
@pytest.mark.parametrize("regions", [(1, 1), (1, 2), (2, 1), (0, 0), (255, 254)])
def test_equal_offsets_have_a_code_of_their_own(regions, offset):
    send, recv = (Place(region, offset) for region in regions)
    code = code_of(send, recv)
    assert max(PLAIN, APART) < code < 1 << 54
    assert places_of(code) == (send, recv)


@pytest.mark.parametrize(
    ("send", "recv", "code"),
    [
        (NOWHERE, NOWHERE, PLAIN),
        (NOWHERE, Place(1, 0), APART),
        (Place(1, 0), NOWHERE, APART),
        (Place(1, 0), Place(1, 4), APART),
        (Place(256, 0), Place(1, 0), APART),
        (Place(1, 0), Place(256, 0), APART),
        (Place(1, MOST + 1), Place(1, MOST + 1), APART),
    ],
)
def test_others_have_none(send, recv, code):
    assert code_of(send, recv) == code
