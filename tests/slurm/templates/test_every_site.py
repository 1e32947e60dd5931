"""Slurm takes the script of every site, as far as the Slurm of the tests has what it asks for."""

import pytest

from helpers.slurm.configuration import CORES_PER_NODE, GPUS_PER_NODE
from helpers.slurm.scripts import SITES, directives, rendered
from mpistrat.sites.flags import option_name
from mpistrat.sites.rendering.options import Strategy
from mpistrat.testing.sets import takes_long

SLURM_SITES = [name for name, site in SITES.items() if site.scheduler == "slurm"]
# What another machine has in its place: nodes of 4 GB, two features, no QOS.
HERE = {
    "--constraint": "--constraint=gpu",
    "--mem": "--mem=100M",
    "--mem-per-gpu": "--mem-per-gpu=100M",
}


@takes_long()
@pytest.mark.deadline(120)
@pytest.mark.parametrize("name", SLURM_SITES)
def test_sbatch_takes_it(slurm, tmp_path, name):
    site = SITES[name]
    has = site.node.gpus.value if site.node.gpus else 0
    # Where no option asks for GPUs, nodes come with all of theirs.
    gpus = min(has, GPUS_PER_NODE) if site.batch.gpu_flag else None
    for strategy in Strategy:
        if strategy is Strategy.ARRAY and site.forbids("--array"):
            continue
        options = {"cpus_per_task": 1, "partition": "main", "gpus": gpus}
        if strategy not in (Strategy.ONE_DEVICE, Strategy.PARAMETER_SERVER):
            options["tasks_per_node"] = min(CORES_PER_NODE, gpus or 2)
        script = rendered(name, strategy, **options).text
        names = {option_name(line) for line in directives(script)}
        replaced = tuple(HERE[flag] for flag in HERE if flag in names)
        script = rendered(name, strategy, **options, directives=replaced).text
        (tmp_path / "job.sh").write_text(script)
        done = slurm.run(["sbatch", "--test-only", "job.sh"], folder=tmp_path, is_to_succeed=False)
        assert done.returncode == 0, f"{strategy.value}: {done.stderr}\n{script[:3000]}"
