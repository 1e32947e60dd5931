"""Cores: a rank's part of them."""

import os

import pytest

from mpistrat.system.cpus import cores
from mpistrat.system.cpus.cores import fair_share, quota


def test_usable_are_those_of_the_affinity_mask():
    assert cores.usable() == os.sched_getaffinity(0)


@pytest.mark.parametrize(
    ("mine", "on_machine", "limit", "want"),
    [
        (range(2), [range(2)] * 2, None, 1),
        (range(2), [range(2)] * 3, None, 1),  # more ranks than cores
        (range(8), [range(8)] * 2, None, 4),
        (range(7), [range(7)] * 2, None, 3),
        (range(3), [range(3)] * 3, None, 1),  # thirds add up to a whole
        (range(4), [range(4), range(4, 8)], None, 4),  # bound to cores of their own
        (range(4), [range(4), range(4), range(4, 8)], None, 2),
        (range(64), [range(64)] * 2, 8.0, 4),
        (range(64), [range(64)] * 2, 1.5, 1),
        (range(64), [range(64)], 100.0, 64),
    ],
)
def test_a_rank_has_its_part(mine, on_machine, limit, want):
    assert fair_share(mine, on_machine, limit) == want


def files(root, texts):
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root / "membership", root / "mount"


UNIFIED = {"membership": "0::/jobs/step\n", "mount/jobs/step/cpu.max": "max 100000\n"}
OLDER = {
    "membership": "7:cpu,cpuacct:/job\n3:memory:/job\n",
    "mount/cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
}


@pytest.mark.parametrize(
    ("texts", "want"),
    [
        (UNIFIED, None),
        ({**UNIFIED, "mount/jobs/cpu.max": "250000 100000\n"}, 2.5),
        ({**UNIFIED, "mount/cpu.max": "100000 100000", "mount/jobs/cpu.max": "300000 100000"}, 1),
        ({**OLDER, "mount/cpu,cpuacct/job/cpu.cfs_quota_us": "-1\n"}, None),
        ({**OLDER, "mount/cpu,cpuacct/job/cpu.cfs_quota_us": "400000\n"}, 4.0),
        ({}, None),
    ],
)
def test_the_limits_of_control_groups(tmp_path, texts, want):
    assert quota(*files(tmp_path, texts)) == want
