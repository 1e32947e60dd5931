"""``mpistrat slurm`` prints scripts and sites, and says in one line what is wrong."""

import json
import subprocess

import pytest
from typer.testing import CliRunner

from helpers.slurm.command import mpistrat_slurm
from helpers.slurm.scripts import SITES
from mpistrat.sites.command import app
from mpistrat.testing.sets import takes_long

RENDER = ("render", "--site", "perlmutter", "--strategy", "mirrored", "--account", "m1_g")


def said(done):
    """Return the one line of an error, after its heading."""
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return line.removeprefix("mpistrat slurm: ")


def in_this_process(*arguments):
    """Return the one line of an error; a new process takes a second longer."""
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line.removeprefix("mpistrat slurm: ")


@takes_long()
def test_render_prints_the_script_alone(tmp_path):
    done = mpistrat_slurm(*RENDER, "--time", "30", "--", "train.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("#!/bin/bash\n")
    assert (
        subprocess.run(["bash", "-n"], input=done.stdout, text=True, check=False).returncode == 0
    )
    assert "--strategy mirrored --time 30 --account m1_g -- train.py\n" in done.stdout
    again = mpistrat_slurm(*RENDER, "--time=30", "--explain", "--", "train.py", folder=tmp_path)
    assert "# perlmutter, batch.lines[0]: NERSC/" in again.stdout
    assert "# option --account\n#SBATCH --account=m1_g\n" in again.stdout


@takes_long()
def test_what_stands_after_two_dashes_is_the_programs(tmp_path):
    odd = ["prog", "--site", "x", "--", "-n", "--help", "a b", "$(touch ran)", "", "'"]
    done = mpistrat_slurm(*RENDER, "--", *odd, folder=tmp_path)
    line = next(line for line in done.stdout.splitlines() if line.startswith("program="))
    show = "import json, sys; print(json.dumps(sys.argv[1:]))"
    script = f"{line}; python3 -c '{show}' \"${{program[@]}}\""
    read = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(read.stdout) == odd


@takes_long()
def test_output_is_not_overwritten(tmp_path):
    command = (*RENDER, "--output", "job.sh", "--", "train.py")
    assert mpistrat_slurm(*command, folder=tmp_path).returncode == 0
    file = tmp_path / "job.sh"
    assert mpistrat_slurm(*command, folder=tmp_path).returncode == 0  # the same again
    file.write_text(file.read_text() + "# mine\n")
    assert mpistrat_slurm(*command, folder=tmp_path).returncode == 2
    assert file.read_text().endswith("# mine\n")
    assert "job.sh exists and differs" in mpistrat_slurm(*command, folder=tmp_path).stderr


def test_bytes_that_are_not_utf_8_are_written(tmp_path):
    file = tmp_path / "job.sh"
    command = [*RENDER, "--output", str(file), "--", "ok.py", "\udcff"]
    for _ in range(2):  # the second time the same is there
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.stderr
    assert "ok.py $'\\xff')" in file.read_text(encoding="utf-8")


def test_a_script_that_cannot_be_written_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "mpistrat" / "templates"
    folder.mkdir(parents=True)
    (folder / "mirrored.sh.j2").write_text("{{ options.program[1] }}\n")  # not quoted
    file = tmp_path / "job.sh"
    command = [*RENDER, "--output", str(file), "--", "ok.py", "\udcff"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2
    assert f"mpistrat slurm: cannot write {file}: " in result.stderr.splitlines()[-1]
    assert not file.exists()


@takes_long()
@pytest.mark.parametrize(
    ("site", "then"),
    [("vista", "mpistrat slurm submit 'my job.sh'"), ("polaris", "qsub 'my job.sh'")],
)
def test_what_to_do_with_the_file_is_said(tmp_path, site, then):
    command = ("render", "--site", site, "--strategy", "mirrored", "--account", "a", "--time", "9")
    done = mpistrat_slurm(*command, "--output", "my job.sh", "--", "a.py", folder=tmp_path)
    assert done.stderr.splitlines()[-1] == f"my job.sh: read it, edit it, then: {then}"


@takes_long()
def test_sites_are_listed_with_the_users_own(tmp_path):
    folder = tmp_path / "config" / "mpistrat" / "sites"
    folder.mkdir(parents=True)
    own = 'name = "mine"\ntitle = "My machine"\nscheduler = "slurm"\nlauncher.command = '
    own += '{ value = "srun", source = "me" }\nsources.me = { title = "me", date = 2026-01-02,'
    (folder / "mine.toml").write_text(own + ' by = "measured" }\n')
    (folder / "wrong.toml").write_text("nme = 1\n")
    done = mpistrat_slurm("sites", folder=tmp_path)
    assert done.returncode == 0
    first_words = {line.strip().partition(" ")[0] for line in done.stdout.splitlines()}
    assert {*SITES, "mine"} <= first_words
    assert "My machine (your file)" in done.stdout
    assert "wrong: site file" in done.stderr
    rendered = mpistrat_slurm(
        *("render", "--site", "mine", "--strategy", "one_device", "--", "a.py"), folder=tmp_path
    )
    assert "# mine: me, 2026-01-02" in rendered.stdout


@takes_long()
def test_a_users_own_template_goes_before_ours(tmp_path):
    folder = tmp_path / "config" / "mpistrat" / "templates"
    folder.mkdir(parents=True)
    template = "{% extends base %}\n{% block about %}\n# Mine.\n{% endblock %}\n"
    (folder / "mirrored.sh.j2").write_text(template)
    done = mpistrat_slurm(*RENDER, "--", "a.py", folder=tmp_path)
    assert done.stdout.startswith("#!/bin/bash\n# Mine.\n")
    (folder / "mirrored.sh.j2").write_text("{% extends base %}\n{{ nonsense }\n")
    assert "mirrored.sh.j2, line 2: " in said(
        mpistrat_slurm(*RENDER, "--", "a.py", folder=tmp_path)
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--site", "perlmuter", "--strategy", "mirrored"], "did you mean 'perlmutter'"),
        (["--strategy", "mirrored"], "no --site; `mpistrat slurm sites` lists them"),
        (
            ["--site", "perlmutter", "--strategy", "mirrored2"],
            "--strategy 'mirrored2' is not known; did you mean mirrored? there are one_device, ",
        ),
        (["--site", "perlmutter"], "no --strategy; choose one of one_device, mirrored"),
        ([*RENDER[1:], "--ranks", "9"], "more ranks than slots, 1 nodes x 4"),
        ([*RENDER[1:], "--cpu-only", "--gpus", "2"], "--cpu-only and --gpus 2: choose one"),
        (
            ["--site", "vista", "--strategy", "mirrored", "--time", "5", "--directive=--mem=1G"],
            "--mem=1G: vista refuses jobs with --mem",
        ),
    ],
)
def test_mistakes_are_one_line(arguments, message):
    assert message in in_this_process("render", *arguments, "--", "train.py")
    if "--site" in arguments:
        assert message in in_this_process("submit", *arguments, "--", "train.py")


@pytest.mark.parametrize("option", ["--python", "--time", "--signal"])
def test_empty_options(option):
    assert in_this_process(*RENDER, option, "", "--", "a.py").startswith(f"{option} '': expected")


def test_no_program():
    assert in_this_process(*RENDER).startswith("no program to run: give it after --")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.sh"], "cannot read the script none.sh"),
        (["a.sh", "b.sh"], "expected one script or --site, got 2 arguments"),
        ([], "expected one script or --site, got 0 arguments"),
        (["a.sh", "--nodes", "2", "--gpus", "1"], "--nodes, --gpus without --site"),
        (["--site", "polaris", "--", "a.py"], "polaris has PBS Pro, submit is for Slurm"),
    ],
)
def test_what_submit_refuses(arguments, message):
    assert message in in_this_process("submit", *arguments)


@takes_long()
def test_where_there_is_no_slurm(tmp_path):
    (tmp_path / "job.sh").write_text("#!/bin/bash\n")
    done = mpistrat_slurm("submit", "job.sh", folder=tmp_path, variables={"PATH": str(tmp_path)})
    assert said(done).startswith("there is no sbatch here; run this on a login node")


@takes_long()
@pytest.mark.parametrize("name", ["SLURM_JOB_ID", "SLURM_JOB_NODELIST"])
def test_half_of_slurms_variables(name, tmp_path):
    (tmp_path / "job.sh").write_text("#!/bin/bash\n")
    variables = {"SLURM_JOB_ID": None, "SLURM_JOB_NODELIST": None, name: "7"}
    done = mpistrat_slurm("submit", "job.sh", folder=tmp_path, variables=variables)
    assert f"{name}='7' is set and SLURM_JOB_" in said(done)
    assert "run `unset ${!SLURM_@}`" in done.stderr
