"""The lint names the functions of a program that go wrong with Horovod, and these alone."""

import ast
import importlib.util
import json
import re
from pathlib import Path

import pytest

from mpistrat.doctor.lint.program import Program
from mpistrat.doctor.lint.rules import RULES
from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import takes_long

FILE = Path(__file__).with_name("traps.py")
TEXT = FILE.read_text()
ENDS = {
    name: outcome for outcome, name in re.findall(r"^@ends\((.+)\)\ndef (\w+)", TEXT, re.MULTILINE)
}
WORDS = {"DIFFER": '"ranks differ"', "AGREE": '"ranks agree"'}
DEADLINE_S = 180
pytestmark = [pytest.mark.deadline(DEADLINE_S + 20), takes_long(unit="file")]


def found():
    """Return the rules that the lint names in each function."""
    program = Program(str(FILE), TEXT, {})
    rules = {}
    for rule in RULES:
        for trap in rule.find(program):
            above = [
                one for one, _ in program.above(trap.node) if isinstance(one, ast.FunctionDef)
            ]
            rules.setdefault(above[-1].name, set()).add(rule.name)
    return rules


@pytest.mark.parametrize("name", ENDS)
def test_the_lint_names_it_if_it_goes_wrong(name):
    rule = name.partition("__")[0].replace("_", "-")
    assert found().get(name, set()) == (set() if rule == "fine" else {rule})


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    spec = importlib.util.find_spec("horovod")
    if spec is None or spec.origin is None:  # a folder of tests has its name, too
        pytest.skip("Horovod is not installed; mpistrat horovod build installs it")
    times = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "2", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "6"}
    folder = tmp_path_factory.mktemp("traps")
    result = run_job([str(FILE)], 2, DEADLINE_S, times, folder)
    return [json.loads(output.stdout.splitlines()[-1]) for output in result.check().ranks]


@pytest.mark.parametrize("name", ENDS)
def test_it_ends_with_horovod_as_it_says(job, name):
    outcome = ast.literal_eval(WORDS.get(ENDS[name], ENDS[name])).split("|")
    said = [outcome[rank % len(outcome)].strip() for rank in range(2)]
    assert [ended[name] for ended in job] == said
