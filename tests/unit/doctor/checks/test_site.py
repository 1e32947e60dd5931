"""The checks of the site compare recorded facts with a site's file."""

from dataclasses import replace

import pytest

from helpers.doctor.jobs import faults, has_fault, job, judged, site
from mpistrat.doctor.check import Status
from mpistrat.doctor.checks.site import (
    cpu_map,
    gpu_map,
    interfaces,
    launcher,
    node,
    options,
    slurm_configuration,
    storage,
    variables,
)
from mpistrat.doctor.checks.site.launcher import Launchers
from mpistrat.doctor.checks.site.node import Node
from mpistrat.doctor.checks.site.options import JobOptions, directives
from mpistrat.doctor.checks.site.slurm_configuration import Configuration
from mpistrat.doctor.checks.site.storage import Place
from mpistrat.doctor.gpus.driver import Gpu
from mpistrat.doctor.gpus.seen import Seen
from mpistrat.doctor.here import Here
from mpistrat.doctor.job.launcher import Launcher
from mpistrat.doctor.not_here import NotHere

CHECKS = [
    module.CHECK
    for module in (options, launcher, cpu_map, node, variables, interfaces, slurm_configuration)
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_without_a_site_there_is_nothing_to_compare(check):
    with pytest.raises(NotHere, match="no site is named"):
        judged(check, [None], job())


# --------------------------------------------------------------------------------------- options

BATCH = """\
[batch]
forbidden = [
  { value = "--gres", source = "us", reason = "Slurm refuses it" },
  { value = "--nodelist", source = "us" },
]
required = [{ value = "--account", source = "us" }]
"""


def test_directives_of_a_script():
    script = "#!/bin/sh\n#SBATCH -N 2 --job-name='two words' # why\n#PBS -l walltime=1\necho\n"
    assert directives(script) == ["-N 2", "--job-name=two words", "-l walltime=1"]


def test_forbidden_and_missing_options(tmp_path):
    here = job(kind="srun", site=site(tmp_path, BATCH))
    verdict = judged(options.CHECK, [JobOptions(("-N 2", "--gres=gpu:4", "-w n1"))], here)
    assert has_fault(verdict, Status.FAILURE, "--gres=gpu:4", "Slurm refuses it")
    assert has_fault(verdict, Status.FAILURE, "-w n1", "a page")
    assert has_fault(verdict, Status.WARNING, "no --account", "#SBATCH --account ...")
    assert len(verdict.problems) == 3


def test_options_of_the_command_line_are_found_once(tmp_path):
    here = job(kind="srun", site=site(tmp_path, BATCH))
    verdict = judged(options.CHECK, [JobOptions((), ("--gres",))], here)
    assert has_fault(verdict, Status.FAILURE, "the job has --gres")
    both = JobOptions(("-A me", "--gres=gpu:4"), ("--gres",))
    assert len(judged(options.CHECK, [both], here).problems) == 1
    assert faults(judged(options.CHECK, [JobOptions(("-A me",))], here)) == []


# -------------------------------------------------------------------------------------- launcher


def test_the_sites_launcher(tmp_path):
    ibrun = job(kind="srun", site=site(tmp_path, command="ibrun"))
    absent = judged(launcher.CHECK, [Launchers(("srun",))], ibrun)
    assert has_fault(absent, Status.FAILURE, "ibrun is not on PATH")
    mpiexec = job(kind="srun", site=site(tmp_path, command="mpiexec"))
    other = judged(launcher.CHECK, [Launchers(("srun", "mpiexec"))], mpiexec)
    assert has_fault(other, Status.WARNING, "started by srun", "mpiexec -n 2 -ppn 2 mpistrat")
    right = job(kind="mpiexec", site=mpiexec.site)
    assert faults(judged(launcher.CHECK, [Launchers(("mpiexec",))], right)) == []


def test_a_type_of_mpi_that_this_slurm_does_not_offer(tmp_path):
    text = '[launcher.mpi]\nvalue = "pmix"\nsource = "us"'
    here = job(kind="srun", mpi_type="pmi2", site=site(tmp_path, text))
    verdict = judged(launcher.CHECK, [Launchers(("srun",), ("none", "pmi2"))], here)
    assert has_fault(verdict, Status.FAILURE, "offers none, pmi2", "pmix, which")
    assert verdict.corrections == {"launcher.mpi": "pmi2"}


def test_the_type_that_works_goes_into_the_file(tmp_path):
    here = job(kind="srun", mpi_type="pmi2", site=site(tmp_path))
    verdict = judged(launcher.CHECK, [Launchers(("srun",), ("none", "pmi2"))], here)
    assert (faults(verdict), verdict.corrections) == ([], {"launcher.mpi": "pmi2"})


# --------------------------------------------------------------------------------- CPUs and nodes

MAP = '[binding]\ncpus_of_local_rank = { value = ["0-3", "4-7"], source = "us" }'


def test_the_map_of_cpus(tmp_path):
    here = job(["n0", "n0", "n1", "n1"], "srun", site=site(tmp_path, MAP))
    right = [frozenset({0, 1}), frozenset({4, 5})] * 2
    assert faults(judged(cpu_map.CHECK, right, here)) == []
    verdict = judged(cpu_map.CHECK, [*right[:3], frozenset({0})], here)
    assert has_fault(verdict, Status.WARNING, "rank 3 on n1", "4-7, as the site's file")
    with pytest.raises(NotHere, match="for 2 ranks a node"):
        judged(cpu_map.CHECK, right[:1], job(["n0"], site=here.site))


NODE = '[node]\ncores = { value = 64, source = "us" }\nmemory_gb = { value = 512, source = "us" }'


def test_the_node(tmp_path):
    here = job(site=site(tmp_path, NODE))
    well = judged(node.CHECK, [Node(2, 64, 1, 530, None)], here)
    assert faults(well) == []
    assert well.corrections == {"node.sockets": 2, "node.threads_per_core": 1}
    verdict = judged(node.CHECK, [Node(2, 56, 1, 270, 4)], here)
    assert has_fault(verdict, Status.WARNING, "cores = 56", "64")
    assert has_fault(verdict, Status.WARNING, "memory_gb = 270", "512")
    assert verdict.corrections["node.gpus"] == 4


GPU_MAP = '[binding]\ngpu_of_local_rank = { value = [1, 0], source = "us" }'


def test_the_map_of_gpus(tmp_path, monkeypatch):
    monkeypatch.delenv("MPISTRAT_GPU_ORDER", raising=False)
    here = job(["n0", "n0"], "srun", site=site(tmp_path, GPU_MAP))
    seen = [Seen((Gpu("0000:01:00.0"), Gpu("0000:02:00.0")))] * 2
    verdict = judged(gpu_map.CHECK, seen, here)
    assert has_fault(verdict, Status.WARNING, "all ranks", "rank 0 uses GPU 0", "GPU 1, as")
    assert verdict.problems[0].command == "export MPISTRAT_GPU_ORDER=1,0"
    monkeypatch.setenv("MPISTRAT_GPU_ORDER", "1,0")
    assert faults(judged(gpu_map.CHECK, seen, here)) == []
    with pytest.raises(NotHere, match="2 ranks that see 2 GPUs"):
        judged(gpu_map.CHECK, seen[:1], job(["n0"], site=here.site))


# -------------------------------------------------------- variables, interfaces, folders, Slurm


def test_variables_of_the_site(tmp_path):
    text = '[environment]\nNCCL_NET = { value = "OFI", source = "us", reason = "no sockets" }'
    here = job(kind="srun", site=site(tmp_path, text))
    assert faults(judged(variables.CHECK, [(("NCCL_NET", "OFI", "OFI"),)], here)) == []
    verdict = judged(variables.CHECK, [(("NCCL_NET", "OFI", ""),)], here)
    assert has_fault(verdict, Status.WARNING, "NCCL_NET is not set", "no sockets")
    assert verdict.problems[0].command == "export NCCL_NET=OFI"
    quoted = judged(variables.CHECK, [(("NCCL_NET", "it's $(x)", ""),)], here)
    assert quoted.problems[0].command == "export NCCL_NET='it'\"'\"'s $(x)'"


def test_variables_that_name_the_job_are_advised_as_the_file_has_them(tmp_path):
    text = '[environment]\nA = { value = "/tmp/$USER-${SLURM_JOB_ID}", source = "us" }'
    here = job(kind="srun", site=site(tmp_path, text))
    verdict = judged(variables.CHECK, [(("A", "/tmp/me-17", ""),)], here)
    assert verdict.problems[0].command == 'export A="/tmp/$USER-${SLURM_JOB_ID}"'


VARIABLES = """\
[environment]
A = { value = "$HOME/x", source = "us" }
MANY = { value = "1", source = "us", min_nodes = 2 }
LD_LIBRARY_PATH = { value = "/opt/lib:$LD_LIBRARY_PATH", source = "us" }
B = { value = "${HOME:-/tmp}", source = "us" }
"""


def test_variables_that_a_rendered_script_has_set_are_well(tmp_path, monkeypatch):
    """Those of several nodes, and what the script's shell put together, cannot be compared."""
    monkeypatch.setenv("HOME", "/home/me")
    start = Launcher("srun", 2)
    one = Here({"A": "/home/me/x"}, launcher=start, site=site(tmp_path, VARIABLES), hosts=("n0",))
    assert variables.CHECK.measure(one) == (("A", "/home/me/x", "/home/me/x"),)
    two = replace(one, hosts=("n0", "n1"))
    assert [name for name, *_ in variables.CHECK.measure(two)] == ["A", "MANY"]


def test_a_node_without_sys_is_not_here(tmp_path, monkeypatch):
    here = Here({}, launcher=Launcher("mpirun", 2), site=site(tmp_path))
    monkeypatch.setattr(node, "_CPUS", tmp_path)
    with pytest.raises(NotHere, match="online cannot be read"):
        node.CHECK.measure(here)


def test_a_node_with_an_old_linux(tmp_path, monkeypatch):
    here = Here({}, launcher=Launcher("mpirun", 2), site=site(tmp_path))
    (tmp_path / "online").write_text("0-1\n")
    for cpu in range(2):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text("0\n")
        (folder / "thread_siblings_list").write_text("0-1\n")
    monkeypatch.setattr(node, "_CPUS", tmp_path)
    found = node.CHECK.measure(here)
    assert (found.sockets, found.cores, found.threads_per_core) == (1, 1, 2)


def test_interfaces_of_the_site(tmp_path):
    text = '[network]\ninterfaces = { value = ["hsn0"], source = "us" }'
    here = job(["n0", "n1"], "srun", site=site(tmp_path, text))
    assert faults(judged(interfaces.CHECK, [frozenset({"hsn0", "lo"})] * 2, here)) == []
    verdict = judged(interfaces.CHECK, [frozenset({"hsn0"}), frozenset({"eth0"})], here)
    assert has_fault(verdict, Status.FAILURE, "no hsn0 on rank 1 on n1", "eth0")


def test_slurms_configuration(tmp_path):
    text = '[signal]\nrequeue = { value = true, source = "us" }\n'
    text += '[batch]\npartitions = [{ value = "gpu", source = "us" }]'
    here = job(kind="srun", slurm="23.11.4", site=site(tmp_path, text))
    well = Configuration((("JobRequeue", "1"),), ("gpu", "cpu"))
    assert faults(judged(slurm_configuration.CHECK, [well], here)) == []
    verdict = judged(
        slurm_configuration.CHECK, [Configuration((("JobRequeue", "0"),), ("cpu",))], here
    )
    assert has_fault(verdict, Status.WARNING, "JobRequeue=0")
    assert has_fault(verdict, Status.WARNING, "no partition gpu")
    assert verdict.corrections == {"signal.requeue": False}


def test_folders_of_the_site(tmp_path):
    text = '[storage]\nscratch = { value = "$SCRATCH", source = "us" }\n'
    text += 'node_local = { value = "/tmp", source = "us", kind = "disk", needs = "-C nvme" }'
    here = job(kind="srun", site=site(tmp_path, text))
    well = (Place("scratch", "/s", True, "lustre"), Place("node_local", "/tmp", True, "ext4"))
    assert faults(judged(storage.CHECK, [well], here)) == []
    bad = (Place("scratch", "$SCRATCH", False, ""), Place("node_local", "/tmp", True, "tmpfs"))
    verdict = judged(storage.CHECK, [bad], here)
    assert has_fault(verdict, Status.WARNING, "$SCRATCH", "variable is not set")
    assert has_fault(verdict, Status.WARNING, "/tmp is on tmpfs")
    assert verdict.corrections == {"storage.node_local.kind": "ram"}
