"""The report: a table that reads well without colours, JSON, and JUnit."""

import io
import json
import xml.etree.ElementTree as ET

import pytest
from rich.console import Console

from helpers.doctor.jobs import job
from mpistrat.doctor.check import Result, Status, failure, warning
from mpistrat.doctor.examination import Examination
from mpistrat.doctor.report.json_report import as_json
from mpistrat.doctor.report.junit import as_junit
from mpistrat.doctor.report.table import print_table

BAD = failure("rank 1 <has> \x1b[31m[bold]one[/] CPU", "two", "ask for more", "srun -c 2")
SLOW = warning("slow", "fast", "wait")
RESULTS = [
    Result("launch.one_job", "one job", "a thread", Status.OK, "2 ranks", duration_s=0.5),
    Result("cpus.cpu_mask", "CPU masks", "a page", Status.FAILURE, "1 CPU", "2", (BAD, SLOW)),
    Result("cpus.threads", "threads", "", Status.WARNING, "many", "", (SLOW,)),
    Result("gpus.health", "health", "", Status.NOT_HERE, "no GPU"),
    Result("gpus.near", "near", "", Status.NOT_HERE, "no GPU"),
]
EXAMINATION = Examination(job(["n0", "n1"], "srun", mpi_type="pmi2"), RESULTS, {}, 1.25)


@pytest.fixture(params=[80, 120])
def lines(request):
    output = io.StringIO()
    print_table(EXAMINATION, Console(file=output, width=request.param, highlight=False))
    lines = output.getvalue().splitlines()
    assert max(map(len, lines)) <= request.param
    return [line.rstrip() for line in lines]


def test_the_table(lines):
    assert lines[0].endswith(": 2 ranks on 2 nodes (n0, n1), started by srun --mpi=pmi2")
    assert "  ok       one job          2 ranks" in lines
    assert "  FAILURE  CPU masks        1 CPU" in lines
    assert "  no GPU: health, near" in lines
    assert lines[-1] == "1 failure, 1 warning, 1 ok, 2 not here; 1.2 s"


def test_each_problem_says_what_to_do(lines):
    start = lines.index("FAILURE    cpus: CPU masks")
    assert lines[start + 1].startswith("  found    rank 1 <has>")
    assert lines[start + 2 : start + 6] == [
        "  expected two",
        "  do       ask for more",
        "  type     srun -c 2",
        "  see      a page",
    ]
    assert "[bold]one[/]" in lines[start + 1]


def test_what_would_act_on_the_terminal_is_spelled_out(lines):
    assert "\x1b" not in "".join(lines)
    assert "\\x1b[31m" in "".join(lines)


def test_json():
    found = json.loads(as_json(EXAMINATION))
    assert found["summary"] == {"ok": 1, "warning": 1, "failure": 1, "not here": 2}
    assert (found["exit_code"], found["job"]["ranks"]) == (2, 2)
    assert [check["name"] for check in found["checks"]] == [result.name for result in RESULTS]
    masks = found["checks"][1]
    assert (masks["status"], masks["expected"], masks["source"]) == ("failure", "2", "a page")
    assert masks["fix"] == "ask for more; wait"
    assert masks["problems"][0]["command"] == "srun -c 2"


def test_junit():
    suite = ET.fromstring(as_junit(EXAMINATION))
    assert {name: suite.get(name) for name in ("tests", "failures", "skipped")} == {
        "tests": "5",
        "failures": "1",
        "skipped": "2",
    }
    one_job, masks, threads, health, _ = suite
    assert one_job.get("classname") == "doctor.launch"
    assert "type: srun -c 2" in masks.find("failure").text
    assert threads.find("failure") is None
    assert threads.find("system-out").text.startswith("warning: many\nfound: slow")
    assert health.find("skipped").get("message") == "no GPU"
