"""Arguments, names and folders reach the program as they were given, and never run."""

import json
import os
import subprocess
import sys

import pytest

from helpers.slurm.scripts import directives, of
from mpistrat.errors import UsageError
from mpistrat.sites.rendering.launch import Mpi
from mpistrat.sites.rendering.options import Binding, Strategy
from mpistrat.sites.rendering.script import Here

ODD = [
    *("two words", "it's", '"quoted"', "$(touch ran)", "`touch ran`", "$HOME", "a\nb", "a\\b"),
    *("--leading=dash", "-", "--", "*", "~", "#no comment", "", "é√", "!x", "a;b|c&d>e", "\t"),
    # Control characters, separators of lines, blanks before a line's end, bytes of no text.
    *(
        "a\rb",
        "a\r\nb'\\",
        "a\fb",
        "a\u2028touch ran",
        "a\x85\u2029b",
        "a \t\nb ",
        "a\udcff\udce9b",
    ),
]
SHOW = "import json, sys; print(json.dumps(sys.argv[1:]))"
# Stands in for a launcher that starts one rank: passes over its own options, as each of them does.
LAUNCHER = """#!/bin/bash
while [[ $1 == -* ]]; do case $1 in -n | -ppn) shift 2 ;; *) shift ;; esac; done
exec "$@"
"""


def run(script, folder, **variables):
    """Run a script as a batch job does, with a launcher that starts one rank."""
    for name in ("srun", "mpirun", "ibrun", "singularity", "apptainer"):
        (folder / name).write_text(LAUNCHER)
        (folder / name).chmod(0o755)
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "name", "SLURM_CPUS_PER_TASK": "1"}
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash"],
        input=script,
        text=True,
        capture_output=True,
        timeout=60,
        cwd=folder,
        env={**os.environ, **job, **variables, "PATH": path},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert not (folder / "ran").exists()
    return done.stdout


@pytest.mark.parametrize("strategy", [Strategy.MIRRORED, Strategy.ARRAY])
@pytest.mark.parametrize("explain", [False, True])
def test_srun(strategy, explain, tmp_path):
    program = (sys.executable, "-c", SHOW, *ODD)
    script = of(strategy=strategy, program=program, explain=explain)
    assert json.loads(run(script, tmp_path)) == ODD


def test_a_launcher_that_passes_no_signals_on(tmp_path):
    here = Here("", sys.executable, Mpi("mpirun", None, ("-ppn {tasks_per_node}",), "a reason"))
    script = of(program=(sys.executable, "-c", SHOW, *ODD), here=here)
    assert "trap" in script
    assert json.loads(run(script, tmp_path)) == ODD


def test_a_shell_that_shows_each_rank_its_gpu(tmp_path):
    show = f"import os; print(os.environ['CUDA_VISIBLE_DEVICES']); {SHOW}"
    # Polaris has no launcher's option for it, and numbers GPUs against the ranks.
    script = of("polaris", binding=Binding.ISOLATED, program=(sys.executable, "-c", show, *ODD))
    script = script.replace("module ", ": module ").replace("mpiexec\n", "srun\n")
    assert "gpus='3 2 1 0'" in script
    script = script.replace("--cpu-bind depth", "").replace("--ppn 4", "").replace("--depth=8", "")
    variables = {"PBS_O_WORKDIR": str(tmp_path), "PBS_JOBID": "7", "PMI_LOCAL_RANK": "1"}
    gpu, arguments = run(script, tmp_path, **variables).splitlines()
    assert gpu == "2"
    assert json.loads(arguments) == ODD


def test_the_scaling_suite(tmp_path):
    script = of(strategy=Strategy.SCALING, program=(sys.executable, "-c", SHOW, *ODD))
    run(script, tmp_path)
    outputs = sorted(tmp_path.glob("scaling-7/*.out"))
    assert [file.name for file in outputs] == [f"ranks-{n}.out" for n in (1, 2, 4)]
    assert all(json.loads(file.read_text()) == ODD for file in outputs)


def test_a_container_of_an_odd_name(tmp_path):
    image = "my $(touch ran) image's.sif"
    show = f"import sys; print(sys.argv); {SHOW}"
    script = of(container=image, program=(sys.executable, "-c", show, *ODD))
    assert '--bind="$PWD"' in script
    # The image comes last before the program: let the stand-in for the runtime take it as one.
    script = script.replace(
        "apptainer exec",
        f"{sys.executable} -c 'import os, sys; image = "
        "sys.argv[3]; print(image); sys.stdout.flush(); "
        "os.execv(sys.argv[4], sys.argv[4:])'",
    )
    said = run(script, tmp_path).splitlines()
    assert said[0] == image
    assert json.loads(said[-1]) == ODD


def test_a_failing_program_is_the_jobs_result(tmp_path):
    script = of(program=(sys.executable, "-c", "raise SystemExit(3)"))
    with pytest.raises(AssertionError):
        run(script, tmp_path)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    job = {"SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "1", "PATH": path}
    environment = {**os.environ, **job}
    done = subprocess.run(
        ["bash"], input=script, text=True, cwd=tmp_path, env=environment, timeout=60, check=False
    )
    assert done.returncode == 3


def test_python_is_put_before_scripts_and_options_only():
    here = Here("/my env/bin", "python3.12")
    assert "program=(python3.12 train.py --epochs 3)" in of(here=here)
    assert "program=(python3.12 -m package)" in of(program=("-m", "package"), here=here)
    assert "program=(./a.out 1)" in of(program=("./a.out", "1"), here=here)
    assert "\nexport PATH='/my env/bin':$PATH\n" in of(here=here)
    in_container = of(here=here, container="image.sif")
    assert "program=(python3 train.py --epochs 3)" in in_container
    assert "/my env/bin" not in in_container


@pytest.mark.parametrize("name", ["two words", "it's", 'a "b" # c', "$(touch ran)", "%x", "a\\b"])
def test_names_are_quoted_for_sbatch(name):
    (line,) = (line for line in directives(of(name=name)) if line.startswith("--job-name"))
    text = line.removeprefix("--job-name=").removeprefix('"').removesuffix('"')
    assert text.replace("\\\\", "\0").replace('\\"', '"').replace("\0", "\\") == name


@pytest.mark.parametrize("name", ["a\nb", "", " ", "\x1b[31m"])
def test_a_name_is_one_line(name):
    with pytest.raises(UsageError, match=r"--name .* expected one line of text"):
        of(name=name)


def test_names_that_a_scheduler_cannot_take():
    with pytest.raises(UsageError, match="--name 'a/b': the output's file is named after it"):
        of(name="a/b")
    with pytest.raises(UsageError, match="--name 'two words': PBS Pro takes letters"):
        of("polaris", name="two words")


@pytest.mark.parametrize(
    ("program", "name"),
    [
        (["train.py"], "train"),
        (["python", "-u", "/a/my run.py"], "my-run"),
        (["-m", "package.module"], "package.module"),
        (["/usr/bin/python3.11", "-m", "package"], "package"),
        (["$(touch ran)"], "touch-ran"),
    ],
)
def test_a_job_is_named_after_its_program(program, name):
    assert f"--job-name={name}" in directives(of(program=tuple(program)))


# Each of them ends a line for some reader: str.splitlines, an editor, a terminal.
SEPARATORS = ["\n", "\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]


@pytest.mark.parametrize("separator", SEPARATORS, ids=map(ascii, SEPARATORS))
@pytest.mark.parametrize("explain", [False, True])
def test_the_heading_is_a_comment_whatever_is_given(separator, explain):
    word = separator.join(("a", "#SBATCH --nodes=9", "touch ran"))
    script = of(program=("train.py", word), explain=explain)
    assert "--nodes=9" not in directives(script)
    assert directives(script) == directives(of(program=("train.py",)))
    heading = script.partition("\n\n")[0].splitlines()
    assert all(line.startswith("#") for line in heading)


def test_a_script_is_utf_8_whatever_is_given():
    script = of(program=("train.py", "\udcff\r\n"), python="/\udcfe/python")
    assert "program=(python3 train.py $'\\xff\\x0d\\x0a')" in script.encode().decode()


def test_no_line_ends_in_blanks():
    for strategy in Strategy:
        lines = of(strategy=strategy, stage_environment="/env").split("\n")
        assert [line for line in lines if line != line.rstrip()] == []
