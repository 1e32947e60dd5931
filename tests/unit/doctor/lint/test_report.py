"""The command: its report, its JSON, its exit status; programs are never run."""

import json

import pytest
from typer.testing import CliRunner

from mpistrat.doctor.command import doctor

typer = pytest.importorskip("typer")
BAD = """import horovod.tensorflow.keras as hvd
hvd.init()
optimizer = hvd.DistributedOptimizer(sgd)
"""


def lint(*arguments, env=None):
    app = typer.Typer()
    app.command()(doctor)
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "80"} | (env or {}))


@pytest.fixture
def program(tmp_path):
    file = tmp_path / "train.py"
    file.write_text(BAD + "raise SystemExit('it was run')\n")
    return file


def test_a_finding_says_where_what_and_what_instead(program):
    said = lint("--lint", program)
    assert said.exit_code == 1
    lines = said.stdout.splitlines()
    what = "silently wrong: hvd.DistributedOptimizer [keras-optimizer]"
    assert lines[0] == f"{program}:3:13: {what}"
    assert [line.split()[0] for line in lines if line[:4].isspace() and line[4:5] != " "] == [
        "happens",
        "instead",
        "see",
    ]
    assert "docs/from-horovod.md#keras-optimizer" in said.stdout
    assert lines[-1] == "1 finding in 1 file (1 silently wrong)"
    assert not any(line != line.rstrip() for line in lines)


def test_nothing_found(tmp_path):
    file = tmp_path / "train.py"
    file.write_text("import tensorflow as tf\n")
    said = lint("--lint", file)
    assert said.exit_code == 0
    assert said.stdout == "0 findings in 1 file; 1 file without Horovod for TensorFlow\n"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"def f(:\n", "line 1"),
        (b"# coding: nonsense\n", "nonsense"),
        (b"x = '\xff'\n", "encoding"),
        (b"x = '\x00'\n", "null bytes"),
    ],
)
def test_a_file_that_is_no_python(program, tmp_path, content, why):
    other = tmp_path / "other.py"
    other.write_bytes(content)
    said = lint("--lint", other, program)
    assert said.exit_code == 2
    assert f"{other}: is not Python" in said.stdout
    assert why in said.stdout
    assert "1 finding in 1 file (1 silently wrong); 1 could not be read" in said.stdout


def test_an_expression_that_is_too_long(tmp_path):
    file = tmp_path / "long.py"
    file.write_text("x = " + " + ".join(["y"] * 2000) + "\n")
    said = lint("--lint", file)
    assert said.exit_code == 2
    assert "nested too deeply" in said.stdout


def test_a_file_that_is_not_there(tmp_path):
    said = lint("--lint", tmp_path / "no.py")
    assert said.exit_code == 2
    assert "cannot be read: No such file" in said.stdout
    assert said.stdout.endswith("0 findings in 0 files; 1 could not be read\n")


def test_a_folder_without_python_files(tmp_path):
    said = lint("--lint", tmp_path)
    assert said.exit_code == 2
    assert f"{tmp_path}: is a folder without Python files (*.py)" in said.stdout


def test_a_folder_is_no_file_for_json(program, tmp_path):
    for arguments in (["--lint", program], []):
        said = lint(*arguments, "--json", tmp_path)
        assert (said.exit_code, said.stdout) == (2, "")
        assert f"cannot write {tmp_path}: it is a folder; expected a file" in said.stderr


def test_the_files_of_a_folder(program, tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "b.py").write_text(BAD)
    said = lint("--lint", tmp_path)
    assert said.exit_code == 1
    assert "2 findings in 2 files" in said.stdout


def test_json(program):
    said = lint("--lint", program, "--json", "-")
    content = json.loads(said.stdout)
    assert said.exit_code == content["exit_code"] == 1
    assert content["files"] == [
        {"file": str(program), "uses_horovod": True, "keras": 3, "error": ""}
    ]
    (finding,) = content["findings"]
    assert (finding["line"], finding["column"], finding["rule"]) == (3, 13, "keras-optimizer")
    assert finding["outcome"] == "silently wrong"


def test_json_in_a_file_beside_the_text(program, tmp_path):
    said = lint("--lint", program, "--json", tmp_path / "found.json")
    assert said.stdout.endswith("(1 silently wrong)\n")
    assert len(json.loads((tmp_path / "found.json").read_text())["findings"]) == 1


def test_a_line_may_allow_a_rule(program):
    allowed = "sgd)  # mpistrat: allow dtypes, keras-optimizer"
    program.write_text(BAD.replace("sgd)", allowed))
    assert lint("--lint", program).exit_code == 0
    program.write_text(BAD.replace("sgd)", "sgd)  # mpistrat: allow dtypes"))
    assert lint("--lint", program).exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["train.py"], "--lint and files go together"),
        (["--lint"], "--lint and files go together"),
        (["--lint", "train.py", "--junit", "a.xml"], "no option of a job's"),
        (["--lint", "train.py", "--json", "no/such/folder/a.json"], "there is no folder"),
    ],
)
def test_options_that_do_not_fit(arguments, why):
    said = lint(*arguments)
    assert said.exit_code == 2
    assert why in said.stderr
