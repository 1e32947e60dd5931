"""The site files of slurm/sites: each is valid, and says what its sources say."""

import datetime as dt
import re
import subprocess
from pathlib import Path

import pytest

from mpistrat.sites.reading import read
from mpistrat.sites.schema import Site

FOLDER = Path(__file__).parents[3] / "slurm" / "sites"
SITES = {file.stem: read(file) for file in sorted(FOLDER.glob("*.toml"))}
EVERY_SITE = pytest.mark.parametrize("site", SITES.values(), ids=SITES)


def commands(site: Site) -> list[str]:
    """Return what a job script of the site has on directives and on the launcher's line."""
    parts = (
        "batch.lines",
        "batch.gpu",
        "launcher.flags",
        "binding",
        "signal",
        "storage.node_local",
    )
    given = [value for key, value in site.values() if key.startswith(parts)]
    needs = site.storage.node_local.needs if site.storage.node_local else None
    return [*(value.value for value in given if isinstance(value.value, str)), needs or ""]


def test_all_sites_are_there():
    assert set(SITES) >= {
        *("alps", "aurora", "aws-parallelcluster", "delta", "expanse", "frontier"),
        *("generic-slurm", "jupiter", "juwels-booster", "leonardo", "lumi-g", "marenostrum5"),
        *("perlmutter", "polaris", "vista"),
    }


@EVERY_SITE
def test_each_value_has_a_source_of_some_date(site):
    values = list(site.values())
    assert len(values) > 4
    for _, value in values:
        source = site.source_of(value)
        assert source.date is None or dt.date(2020, 1, 1) < source.date < dt.date(2027, 1, 1)
        assert str(source.date or "undated") in str(source)
    assert {value.source for _, value in values} == set(site.sources)


@EVERY_SITE
def test_what_users_state_is_marked(site):
    community = [source for source in site.sources.values() if source.by == "community"]
    assert all(str(source).endswith("community)") for source in community)
    named = re.compile("warpx|oellm|picongpu|parsl|eessi|user's|users'|a copy", re.IGNORECASE)
    assert [source for source in site.sources.values() if named.search(source.title)] == community


@EVERY_SITE
def test_what_no_source_states_is_listed(site):
    assert site.unknown
    text = " ".join(site.unknown)
    looked_for = {
        "variables of NCCL": any(name.startswith("NCCL") for name in site.environment),
        "names of the network interfaces": site.network.interfaces is not None,
        "flag for srun --mpi": site.launcher.mpi is not None,
        "node-local folder": site.storage.node_local is not None,
        "GPU of each local rank": site.binding.gpu_of_local_rank is not None,
    }
    assert [name for name, is_known in looked_for.items() if is_known and name in text] == []


@EVERY_SITE
def test_forbidden_options_are_in_no_line(site):
    for entry in site.batch.forbidden:
        assert site.forbids(f"{entry.value}=1") is entry
        for line in commands(site):
            assert entry.value not in re.split(r"[ =]", line)


@EVERY_SITE
def test_ranks_of_a_node_have_a_gpu_and_cpus_of_their_own(site):
    gpus, cpus = site.binding.gpu_of_local_rank, site.binding.cpus_of_local_rank
    if gpus:
        assert set(gpus.value) == set(range(len(gpus.value)))
    if gpus and site.tasks.per_node:
        assert len(gpus.value) == site.tasks.per_node.value
    if gpus and cpus:
        assert len(gpus.value) == len(cpus.value)


@EVERY_SITE
def test_values_can_be_used_as_they_are(site):
    for key, value in site.values():
        if not key.startswith("notes"):
            assert not re.search(r"<\w+>|\[\w+id\]", str(value.value)), key


@EVERY_SITE
def test_limits_are_of_partitions_that_are_listed(site):
    listed = {partition.value for partition in site.batch.partitions}
    for limit in site.walltime.limits:
        assert limit.partition in listed or "QOS" in (limit.reason or "")
    default = site.batch.default_partition
    assert default is None or default.value in listed


def test_tacc_refuses_what_others_need():
    for name in ("vista", "stampede3"):
        site = SITES[name]
        assert site.launcher.command.value == "ibrun"
        assert site.batch.gpu_flag is None
        for directive in ("--gres=gpu:4", "--gpus-per-task=1", "--mem=4G", "--export=ALL"):
            assert site.forbids(directive)
        assert not site.forbids("--gpus-per-node=4")
    assert SITES["vista"].forbids("-w node1")
    assert SITES["frontera"].forbids("-a 0-7")


def test_fallbacks():
    assert {value.value for value in SITES["polaris"].fallback.unset} == {
        *("NCCL_NET_GDR_LEVEL", "NCCL_CROSS_NIC", "NCCL_COLLNET_ENABLE", "NCCL_NET")
    }
    assert {
        name: value.value for name, value in SITES["alps"].fallback.set.items()
    } == dict.fromkeys(
        ("FI_CXI_RDZV_GET_MIN", "FI_CXI_RDZV_THRESHOLD", "FI_CXI_RDZV_EAGER_SIZE"), "0"
    )


def test_plug_ins_are_required_where_they_can_start():
    assert SITES["frontier"].environment["NCCL_NET"].min_nodes == 2
    assert SITES["alps"].environment["NCCL_NET"].min_nodes is None


def test_orders_of_gpus():
    orders = {name: site.binding.gpu_of_local_rank for name, site in SITES.items()}
    assert orders["perlmutter"].value == orders["polaris"].value == (3, 2, 1, 0)
    assert orders["frontier"].value == (4, 5, 2, 3, 6, 7, 0, 1)
    assert orders["alps"].value == (0, 1, 2, 3)


def test_masks_of_lumi_are_its_lists_of_cpus():
    binding = SITES["lumi-g"].binding
    masks = binding.full_node_flags[0].value.partition("mask_cpu:")[2].split(",")
    for mask, cpus in zip(masks, binding.cpus_of_local_rank.value, strict=True):
        first, last = map(int, cpus.split("-"))
        assert int(mask, 16) == sum(1 << cpu for cpu in range(first, last + 1))


def test_lists_of_aurora_are_its_lists_of_cpus():
    binding = SITES["aurora"].binding
    lists = binding.full_node_flags[0].value.partition("list:")[2].split(":")
    assert tuple(lists) == binding.cpus_of_local_rank.value


def test_memory_that_is_called_tmp_is_told_from_disks():
    kinds = {name: site.storage.node_local for name, site in SITES.items()}
    assert kinds["lumi-g"].kind == kinds["leonardo"].kind == "ram"
    assert kinds["vista"].kind == "disk"
    assert kinds["frontier"].needs == "-C nvme"
    assert kinds["marenostrum5"].kind is None


PATHS = [
    (site.name, value.value)
    for site in SITES.values()
    for key, value in site.values()
    if key.endswith("LD_LIBRARY_PATH")
]


@pytest.mark.parametrize(
    "variables", [{}, {"CRAY_LD_LIBRARY_PATH": "/c"}, {"LD_LIBRARY_PATH": "/l1:/l2"}]
)
@pytest.mark.parametrize(("site", "text"), PATHS, ids=[name for name, _ in PATHS])
def test_search_paths_have_no_empty_entry(site, text, variables):
    # Which would be the working directory, where libraries of anybody may be.
    command = ["bash", "-uc", f'printf %s "{text}"']
    paths = subprocess.check_output(command, env=variables, timeout=30, text=True)
    assert paths == "" or "" not in paths.split(":")
    assert all(path in paths for name, path in variables.items() if name in text)
