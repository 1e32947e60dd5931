"""NUMA domains are read as Linux describes them."""

import os

from mpistrat.system.cpus.numa import domains_of, numa_domains


def test_domains_of_a_machine_with_two_and_one_without_cpus(tmp_path):
    lists = {
        "node0": "0-1,4-5\n",
        "node10": "2-3,6\n",
        "node2": "\n",
        "nodes": "9\n",
        "node3": "x",
    }
    for name, text in lists.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "cpulist").write_text(text)
    assert numa_domains(tmp_path) == {0: {0, 1, 4, 5}, 10: {2, 3, 6}}
    assert domains_of([1, 4], tmp_path) == [0]
    assert domains_of({6, 0}, tmp_path) == [0, 10]
    assert domains_of([7], tmp_path) == []


def test_where_nothing_is_described_nothing_is_known(tmp_path):
    assert numa_domains(tmp_path / "missing") == {}
    assert domains_of([0], tmp_path / "missing") == []


def test_every_cpu_of_this_process_is_in_a_domain_if_there_are_any():
    here = os.sched_getaffinity(0)
    known = numa_domains()
    assert not known or here <= frozenset().union(*known.values())
