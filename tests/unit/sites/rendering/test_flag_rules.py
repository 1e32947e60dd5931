"""Forbidden flags are refused with their source; required ones are asked for at once."""

import pytest

from helpers.slurm.scripts import directives, of
from mpistrat.errors import UsageError


@pytest.mark.parametrize("flag", ["--mem=1G", "--gres=gpu:1", "--export=ALL", "-w c1", "--mem 1G"])
def test_what_tacc_forbids(flag):
    with pytest.raises(UsageError) as raised:
        of("vista", directives=(flag,))
    said = str(raised.value)
    assert said.startswith(flag)
    assert ": vista refuses jobs with -" in said
    assert "TACC/TACC-Docs@1d94ecf" in said
    assert "\n" not in said


def test_all_that_is_missing_is_said_at_once():
    with pytest.raises(UsageError) as raised:
        of("polaris", account=None, time=None)
    said = str(raised.value)
    assert said.startswith("polaris requires options that are missing: add --account NAME (")
    assert "; --time HH:MM:SS (" in said
    assert "\n" not in said
    with pytest.raises(UsageError, match=r"lumi-g requires .* add --account NAME"):
        of("lumi-g", account=None)
    assert "-A project" in directives(of("polaris"))


def test_the_user_goes_before_the_site_and_the_site_before_the_default():
    assert "--qos=regular" in directives(of("perlmutter"))
    lines = directives(of("perlmutter", directives=("--qos=debug", "-C gpu&hbm80g")))
    assert "--qos=debug" in lines
    assert "--qos=regular" not in lines
    assert '-C "gpu&hbm80g"' in lines
    assert "--constraint=gpu" not in lines
    assert "--no-requeue" in directives(of("expanse"))
    lines = directives(of("expanse", directives=("--requeue",)))
    assert "--requeue" in lines
    assert "--no-requeue" not in lines


def test_partitions():
    assert "--partition=standard-g" in directives(of("lumi-g"))
    assert "--partition=dev-g" in directives(of("lumi-g", partition="dev-g"))
    assert "-q preemptable" in directives(of("polaris", partition="preemptable"))
    with pytest.raises(UsageError, match="'a b': PBS Pro takes letters"):
        of("polaris", partition="a b")


def test_values_of_directives_are_quoted():
    given = ("--comment=two words # and more", "--mail-user=a@b.c", "--exclusive")
    lines = directives(of(directives=given))
    assert '--comment="two words # and more"' in of(directives=given)
    assert {"--mail-user=a@b.c", "--exclusive"} <= set(lines)
    with pytest.raises(UsageError, match="expected one line of text"):
        of(directives=("--comment=a\n#SBATCH --nodes=9",))


@pytest.mark.parametrize(
    ("directive", "own"),
    [
        ("--time=5", "--time HH:MM:SS"),
        ("-t 5", "--time HH:MM:SS"),
        ("-t5", "--time HH:MM:SS"),
        ("--cpus-per-task=3", "--cpus-per-task N"),
        ("--cpus-per-ta=3", "--cpus-per-task N"),  # sbatch takes beginnings of names
        ("-c 3", "--cpus-per-task N"),
        ("-n4", "--ranks N"),
        ("-N 2", "--nodes N"),
        ("--ntasks-per-node 2", "--tasks-per-node N"),
        ("--tasks-per-node=2", "--tasks-per-node N"),
        ("--gpus-per-node=v100:2", "--gpus N"),
        ("-G 2", "--gpus N, of each node"),
        ("--signal=TERM@90", "--signal SIGNAL@SECONDS"),
        ("-a 0-3", "--strategy array --array INDICES"),
        ("-J x", "--name NAME"),
        ("-A x", "--account NAME"),
        ("-p x", "--partition NAME"),
    ],
)
def test_directives_that_have_an_option_of_their_own(directive, own):
    with pytest.raises(UsageError) as raised:
        of(directives=(directive,))
    said = str(raised.value)
    assert said.startswith(f"--directive {directive!r}: give it as {own}; ")
    assert "\n" not in said


@pytest.mark.parametrize(
    ("directive", "own"),
    [
        ("-l walltime=1:00:00", "--time HH:MM:SS"),
        ("-lwalltime=1:00:00", "--time HH:MM:SS"),
        ("-l filesystems=home,walltime=1:00:00", "--time HH:MM:SS"),
        ("-A x", "--account NAME"),
        ("-q prod", "--partition NAME"),
        ("-N x", "--name NAME"),
        ("-J 0-3", "--strategy array --array FIRST-LAST"),
    ],
)
def test_directives_of_pbs_that_have_an_option_of_their_own(directive, own):
    with pytest.raises(UsageError, match=f": give it as {own}; "):
        of("polaris", directives=(directive,))


def test_directives_that_have_none():
    given = ("--output=logs/%x-%j.out", "--mem=1G", "-x n3", "--gres=gpu:v100:2", "--time-min=5")
    assert set(given) <= set(directives(of(directives=given)))


@pytest.mark.parametrize("site", ["generic-slurm", "polaris"])
def test_a_directive_is_one_option(site):
    for two in ("--exclusive --time=5", "-V  -l walltime=5"):
        with pytest.raises(
            UsageError, match="expected one option; give each a --directive of its"
        ):
            of(site, directives=(two,))


def test_pbs_has_one_line_for_each_resource():
    lines = directives(of("polaris", nodes=3, directives=("-l filesystems=home",)))
    assert "-l select=3:system=polaris" in lines
    assert "-l walltime=02:00:00" in lines
    assert [line for line in lines if "filesystems" in line] == ["-l filesystems=home"]
