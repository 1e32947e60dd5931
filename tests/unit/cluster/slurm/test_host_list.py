"""Slurm's lists of hosts are expanded as `scontrol show hostnames` does it."""

import pytest

from mpistrat.cluster.slurm import hosts
from mpistrat.cluster.slurm.host_list import MOST_HOSTS, expand
from mpistrat.errors import UsageError

LISTS = [
    ("n1", ["n1"]),
    ("n[1-3]", ["n1", "n2", "n3"]),
    ("n[1-3,7],m07", ["n1", "n2", "n3", "n7", "m07"]),
    ("n[08-11]", ["n08", "n09", "n10", "n11"]),
    ("n[8-11]", ["n8", "n9", "n10", "n11"]),
    ("n[008,010]", ["n008", "n010"]),
    ("r[1-2]n[01-02]", ["r1n01", "r1n02", "r2n01", "r2n02"]),
    ("gpu-a[1-2]-ib,login", ["gpu-a1-ib", "gpu-a2-ib", "login"]),
    ("x[1-2]c[0-1]s[3,5]b0", [f"x{x}c{c}s{s}b0" for c in (0, 1) for x in (1, 2) for s in (3, 5)]),
    ("b,a,a", ["b", "a", "a"]),
    ("[1-3]", ["1", "2", "3"]),
]


@pytest.mark.parametrize(("text", "wanted"), LISTS, ids=[text for text, _ in LISTS])
def test_lists(text, wanted):
    assert expand(text) == wanted


def test_a_thousand_hosts():
    found = expand("nid[0001-0990],r[1-2]c[1-5]")
    assert (len(found), found[0], found[989], found[-1]) == (1000, "nid0001", "nid0990", "r2c5")
    assert len(set(found)) == 1000


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", ",", "a,", ",a", "a,,b", "n[", "n]", "n[1", "n[1-3", "n1-3]", "n[[1]]"),
        *("n[]", "n[1-]", "n[-3]", "n[3-1]", "n[a-b]", "n[1-2-3]", "n[1,,2]", "a b", "n[1 -2]"),
        f"n[1-{MOST_HOSTS + 1}]",
        "n[1-9999]m[1-9999]",
        "n[1-99999999999999999999999999]",
    ],
)
def test_what_is_no_list_is_refused(text):
    with pytest.raises(UsageError, match=r"list of hosts .*; expected Slurm's form"):
        expand(text)


def test_without_scontrol_the_list_is_expanded_here(monkeypatch):
    monkeypatch.setenv("PATH", "/no/such/folder")
    assert hosts.expand("n[1-2]") == ["n1", "n2"]


def test_the_step_has_a_list_of_its_own(monkeypatch):
    for name in ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"):
        monkeypatch.delenv(name, raising=False)
    assert (hosts.step_list(), hosts.job_list()) == (None, None)
    monkeypatch.setenv("SLURM_NODELIST", "n[0-3]")
    monkeypatch.setenv("SLURM_STEP_NODELIST", "n[0-1]")
    assert hosts.step_list() == ("SLURM_STEP_NODELIST", "n[0-1]")
    assert hosts.job_list() == ("SLURM_NODELIST", "n[0-3]")
