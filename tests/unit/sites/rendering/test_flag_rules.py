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


def test_pbs_has_one_line_for_each_resource():
    lines = directives(of("polaris", nodes=3, directives=("-l filesystems=home",)))
    assert "-l select=3:system=polaris" in lines
    assert "-l walltime=02:00:00" in lines
    assert [line for line in lines if "filesystems" in line] == ["-l filesystems=home"]
