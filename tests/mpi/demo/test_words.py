"""The README's example of parameter servers learns, on ranks and in one process."""

import re

import pytest

from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import takes_long


@takes_long()
@pytest.mark.parametrize("ranks", [1, 5])
def test_words_are_learned(ranks):
    result = run_job(["-m", "mpistrat.demo.words", "1500"], ranks, timeout_s=50).check()
    told = result.ranks[0].stdout
    (first, last), *_ = re.findall(r"loss ([\d.]+) at first, ([\d.]+) in the end", told)
    assert float(first) > 0.65
    assert float(last) < 0.55
    assert len(re.findall(r"^\w+: near \w+, \w+, \w+, \w+$", told, re.MULTILINE)) == 2
    assert not any(rank.stdout for rank in result.ranks[1:])
