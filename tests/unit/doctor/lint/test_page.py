"""docs/from-horovod.md has a heading for each rule, and blocks that belong together."""

import ast
import re

import pytest

from helpers.horovod.guide import PAGE, SIDES, pairs
from mpistrat.doctor.lint.report import PAGE as NAMED
from mpistrat.doctor.lint.rules import RULES

TEXT = PAGE.read_text()
PAIRS = list(pairs(TEXT))
WITH_BOTH = (
    *("init", "rank", "size", "local_rank", "allreduce", "grouped_allreduce", "allgather"),
    *("broadcast", "broadcast_object", "allgather_object", "alltoall", "reducescatter", "join"),
    *("broadcast_variables", "DistributedGradientTape", "DistributedOptimizer", "callbacks"),
    *("SyncBatchNormalization", "elastic", "add_process_set", "load_model"),
)


def test_each_rule_has_a_heading_in_their_order():
    traps = TEXT.partition("## Traps")[2]
    assert re.findall(r"^### (.+)$", traps, re.MULTILINE) == [rule.name for rule in RULES]
    assert PAGE.parts[-2:] == tuple(NAMED.split("/"))


@pytest.mark.parametrize("pair", PAIRS, ids=[pair.name for pair in PAIRS])
def test_both_sides_say_the_same_unless_the_page_says_why_not(pair):
    said = [[pair.says(side, rank) for rank in range(2)] for side in SIDES]
    assert all(ast.parse(pair.code[side]) for side in SIDES)
    assert all(any(lines) for lines in said)
    assert (said[0] != said[1]) == pair.differs


@pytest.mark.parametrize("name", WITH_BOTH)
def test_the_page_has_both_sides_of_a_call(name):
    assert any(re.search(rf"\bhvd(_keras)?\.{name}\b", pair.code["horovod"]) for pair in PAIRS)


def test_no_line_is_wider_than_a_terminal():
    assert [line for line in TEXT.splitlines() if len(line) > 120 and line[0] != "|"] == []
