"""Deadlines of tests, and the variable that multiplies them."""

import pytest

from mpistrat.errors import UsageError
from mpistrat.testing.placement import placement, slower


@pytest.mark.deadline(7)
def test_deadlines_are_multiplied(request, monkeypatch):
    monkeypatch.delenv("MPISTRAT_TESTS_SLOWER", raising=False)
    assert placement(request.node).timeout_s == 7
    monkeypatch.setenv("MPISTRAT_TESTS_SLOWER", "2.5")
    assert placement(request.node).timeout_s == 17.5


@pytest.mark.parametrize("text", ["0.5", "fast", "inf", "nan"])
def test_deadlines_do_not_shrink(text):
    # Set back at once: the plugin reads it for this test, too.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MPISTRAT_TESTS_SLOWER", text)
        with pytest.raises(UsageError, match="expected a number, 1 or more"):
            slower()
