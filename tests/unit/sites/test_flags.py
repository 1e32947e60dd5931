"""Names of options in directives of Slurm and PBS Pro."""

import pytest

from mpistrat.sites.flags import option_name


@pytest.mark.parametrize(
    ("directive", "name"),
    [
        ("--mem=4G", "--mem"),
        ("--mem 4G", "--mem"),
        ("--mem-per-gpu=60G", "--mem-per-gpu"),
        ("--exclusive", "--exclusive"),
        ("-w node1", "--nodelist"),
        ("-N4", "--nodes"),
        ("-A", "--account"),
        ("-u", "-u"),
    ],
)
def test_slurm(directive, name):
    assert option_name(directive) == name


@pytest.mark.parametrize(
    ("directive", "name"),
    [
        ("-l filesystems=home:eagle", "-l filesystems"),
        ("-l select=2:system=polaris", "-l select"),
        ("-lwalltime=1:00:00", "-l walltime"),
        ("-W run_count=17", "-W run_count"),
        ("-q prod", "-q"),
        ("-A", "-A"),
    ],
)
def test_pbs(directive, name):
    assert option_name(directive, "pbs") == name
