"""Mistakes in a site file: one line that names the file, the key and what to write."""

import copy

import pytest
import tomlkit

from mpistrat.errors import UsageError
from mpistrat.sites.reading import read

SOUND = {
    "name": "mine",
    "title": "A machine",
    "scheduler": "slurm",
    "sources": {"page": {"title": "a page", "date": "undated", "by": "centre"}},
    "node": {"gpus": {"value": 4, "source": "page"}},
    "tasks": {"per_node": {"value": 4, "source": "page"}},
    "batch": {
        "lines": [{"value": "--exclusive", "source": "page"}],
        "forbidden": [{"value": "--mem", "source": "page"}],
    },
    "launcher": {"command": {"value": "srun", "source": "page"}},
    "binding": {"gpu_of_local_rank": {"value": [3, 2, 1, 0], "source": "page"}},
    "environment": {"NCCL_NET": {"value": "OFI", "source": "page"}},
    "walltime": {"limits": [{"partition": "gpu", "value": "2-00:00:00", "source": "page"}]},
}
SOURCED = '{ value = ..., source = "<key of [sources]>" }'
REMOVED = object()


def write(folder, changes):
    """Write the sound file with some keys changed; return its path."""
    tables = copy.deepcopy(SOUND)
    for key, value in changes.items():
        *parents, last = key.split(".")
        table = tables
        for parent in parents:
            table = table[int(parent)] if parent.isdigit() else table.setdefault(parent, {})
        if value is REMOVED:
            del table[last]
        else:
            table[last] = value
    file = folder / "mine.toml"
    file.write_text(tomlkit.dumps(tables))
    return file


def refusal(file):
    """Return the one line that refuses a file, without the file's name."""
    with pytest.raises(UsageError) as caught:
        read(file)
    assert caught.value.__cause__ is None or not isinstance(caught.value.__cause__, UsageError)
    text = str(caught.value)
    assert "\n" not in text
    assert "pydantic" not in text.lower()
    assert str(file) in text
    return text.replace(str(file), "FILE")


def value(of):
    return {"value": of, "source": "page"}


def test_the_sound_file_is_read(tmp_path):
    site = read(write(tmp_path, {}))
    assert site.binding.gpu_of_local_rank.value == (3, 2, 1, 0)
    assert dict(site.values())["walltime.limits[0]"].partition == "gpu"
    with pytest.raises(ValueError, match="frozen"):
        site.name = "other"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"batch.line": []},
            "batch.line: unknown key; did you mean 'lines'? expected one of lines, ",
        ),
        ({"launchr": {}}, "launchr: unknown key; did you mean 'launcher'? "),
        ({"node.gpus.sourec": "x"}, "node.gpus.sourec: unknown key; did you mean 'source'? "),
        (
            {"batch.lines": [{"values": "--exclusive", "source": "page"}]},
            "batch.lines[0].values: unknown key; did you mean 'value'? ",
        ),
        (
            {"environment.NCCL_NET.note": "x"},
            "environment.NCCL_NET.note: unknown key; expected one of value, source, reason, ",
        ),
        ({"node.gpus.value": "4"}, "node.gpus.value = '4': expected an integer"),
        ({"node.gpus.value": True}, "node.gpus.value = True: expected an integer"),
        ({"node.gpus": 4}, f"node.gpus = 4: a value without its source; write {SOURCED}"),
        ({"node.gpus.source": REMOVED}, f"node.gpus.source: missing; write {SOURCED}"),
        ({"launcher": REMOVED}, "launcher: missing; add it"),
        ({"launcher.command": value("mpirum")}, "launcher.command.value = 'mpirum': "),
        ({"sources.page.date": REMOVED}, "sources.page.date: missing; add it"),
        (
            {"sources.page.date": "2026"},
            "sources.page.date = '2026': expected a date without quotes, such as ",
        ),
        ({"sources.page.by": "me"}, "sources.page.by = 'me': expected 'centre', 'vendor'"),
        (
            {"node.gpus.source": "pag"},
            "node.gpus: source 'pag' is not in [sources], which has page; did you mean 'page'?",
        ),
        (
            {"sources.other": SOUND["sources"]["page"]},
            "sources.other: no value names this source; remove it",
        ),
        (
            {"batch.lines.0.value": "--mem=4G"},
            "batch.lines[0] = '--mem=4G': '--mem=4G' is in batch.forbidden; remove one",
        ),
        (
            {"launcher.flags": [value("-u --mem 4G")]},
            "launcher.flags[0] = '-u --mem 4G': '--mem 4G' ",
        ),
        (
            {"batch.lines.0.value": "-A {acct}"},
            "batch.lines[0] = '-A {acct}': {acct} is unknown here; expected {account}, {n",
        ),
        (
            {"environment.NCCL_NET.value": "{nodes}"},
            "environment.NCCL_NET = '{nodes}': {nodes} is unknown here; expected no placeholder",
        ),
        (
            {"binding.gpu_of_local_rank.value": [3, 2, 2, 0]},
            "binding.gpu_of_local_rank = [3, 2, 2, 0]: expected each of 0 to 3 once",
        ),
        ({"binding.gpu_of_local_rank.value": [1, 0]}, "is for 2 ranks, tasks.per_node is 4"),
        ({"node.gpus.value": 2}, "binding.gpu_of_local_rank has 4 GPUs, node.gpus 2"),
        (
            {"binding.cpus_of_local_rank": value(["0-7", "8-15", "7", "16"])},
            "binding.cpus_of_local_rank: CPU 7 is given to local ranks 0 and 2",
        ),
        (
            {"binding.cpus_of_local_rank": value(["0-7", "8-", "9", "10"])},
            "binding.cpus_of_local_rank[1] = '8-': expected CPUs such as '0-6,64-70'",
        ),
        (
            {"walltime.limits.0.value": "48h"},
            "walltime.limits[0].value = '48h': expected HH:MM:SS or D-HH:MM:SS",
        ),
        ({"title": "two\nlines"}, "title = 'two\\nlines': expected one line of text, not empty"),
        ({"name": "other"}, "name = 'other', expected 'mine', as the file is named"),
    ],
)
def test_what_is_told(tmp_path, changes, told):
    assert told in refusal(write(tmp_path, changes))


@pytest.mark.parametrize("text", ["$(rm -rf /)", "`id`", 'a"b', "a\\b", "a\nb"])
def test_values_of_variables_run_no_commands(tmp_path, text):
    assert "environment.NCCL_NET" in refusal(write(tmp_path, {"environment.NCCL_NET.value": text}))


@pytest.mark.parametrize(
    "text", ["-u; id", "-u | tee", "-u && id", "-u > x", "-u 'x", "-u *", "$(id)"]
)
def test_flags_run_no_commands(tmp_path, text):
    assert "launcher.flags[0]" in refusal(write(tmp_path, {"launcher.flags": [value(text)]}))


@pytest.mark.parametrize(
    "text", ["touch x", "module load gcc (touch x)", "modules", "module; touch x", "$HOME/x"]
)
@pytest.mark.parametrize("key", ["modules.lines", "container.modules"])
def test_modules_are_loaded_and_nothing_else_is_run(tmp_path, key, text):
    changes = {key: [value(text)]}
    if key.startswith("container"):
        changes = {"container": {"runtime": value("apptainer"), "modules": [value(text)]}}
    assert f"{key}[0].value = {text!r}: " in refusal(write(tmp_path, changes))


def test_spellings_of_commands_for_modules(tmp_path):
    lines = [
        "module purge",
        "module use $HOME/modules",
        "ml gcc/13.2.0 cuda",
        "module load ${A}-b+c",
    ]
    site = read(write(tmp_path, {"modules": {"lines": [value(line) for line in lines]}}))
    assert [line.value for line in site.modules.lines] == lines


def test_variables_may_be_expanded(tmp_path):
    paths = "/opt/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    site = read(write(tmp_path, {"environment.LD_LIBRARY_PATH": value(paths)}))
    assert site.environment["LD_LIBRARY_PATH"].value == paths


def test_a_name_that_is_no_variable(tmp_path):
    file = write(tmp_path, {"environment": {"A;id": value("1")}})
    assert "environment.A;id" in refusal(file)


def test_what_is_not_toml(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text("name = ")
    assert "site file FILE is not TOML: " in refusal(file)
    file.write_bytes(b"\xff")
    assert "cannot read site file FILE: " in refusal(file)


def test_a_file_that_is_not_there(tmp_path):
    assert "cannot read site file FILE: " in refusal(tmp_path / "none.toml")
