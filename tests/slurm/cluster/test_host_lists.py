"""Lists of hosts are expanded as Slurm's own command does."""

import random

import pytest

from mpistrat.cluster.slurm import hosts
from mpistrat.cluster.slurm.host_list import expand

LISTS = [
    *("n1", "n[1-3]", "n[1-3,7],m07", "n[08-11]", "n[8-11]", "n[008,010]", "r[1-2]n[01-02]"),
    *(
        "x[1-2]c[0-1]s[3,5]",
        "x[1-2]c[0-1]s[3,5]b[7]",
        "x[1-3]c[1-2]s[3,5]b[7-8]",
        "b,a,a",
        "nid[0001-0990],r[1-2]c[1-5]",
    ),
]


@pytest.mark.parametrize("text", LISTS)
def test_lists(slurm, monkeypatch, text):
    monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])
    told = slurm.run(["scontrol", "show", "hostnames", text]).stdout.split()
    assert hosts.expand(text) == told
    assert expand(text) == told


def test_lists_that_slurm_makes(slurm):
    """A thousand hosts in no order: Slurm writes the list, and both expand it alike."""
    chance = random.Random(27)
    names = [f"r{chance.randrange(3)}n{chance.randrange(1200):04}" for _ in range(1000)]
    made = slurm.run(["scontrol", "show", "hostlist", ",".join(names)]).stdout.strip()
    assert "[" in made
    assert len(made) < len(",".join(names))
    assert expand(made) == slurm.run(["scontrol", "show", "hostnames", made]).stdout.split()
    assert sorted(expand(made)) == sorted(names)
