"""Options choose nodes, ranks, CPUs and GPUs; those that do not fit are refused in one line."""

import pytest

from helpers.slurm.scripts import directives, of, rendered, words_of
from mpistrat.errors import UsageError
from mpistrat.sites.rendering.launch import Mpi
from mpistrat.sites.rendering.options import Binding, Options, Strategy, binding_of, strategy_of
from mpistrat.sites.rendering.script import Here

WRONG = {
    "more ranks than slots, 1 nodes x 2": {"ranks": "9"},
    "--nodes 0: expected 1 or more": {"nodes": 0},
    "--tasks-per-node 0: expected 1": {"tasks_per_node": 0},
    "--cpu-only and --gpus 2: choose one": {"cpu_only": True, "gpus": 2},
    "--gpus -1: expected 0 or more": {"gpus": -1},
    "0 CPUs per task: expected 1 CPU": {"cpus_per_task": 0},
    "--ranks '1x': expected a number": {"ranks": "1x"},
    "--ranks 1,2: mirrored takes one number": {"ranks": "1,2"},
    "mirrored and --ps 2": {"ps": 2},
    "--time 'soon': expected MINUTES": {"time": "soon"},
    "--time '0': expected": {"time": "0"},
    "--array '0-x': expected indices": {"array": "0-x"},
    "--signal 'KILL@60': expected SIGNAL@SECONDS": {"signal": "KILL@60"},
    "--signal '9@60': expected SIGNAL@SECONDS": {"signal": "9@60"},
    "--signal 'R:USR1@60': expected SIGNAL@SECONDS": {"signal": "R:USR1@60"},
    "--signal 'USR1': expected SIGNAL@SECONDS": {"signal": "USR1"},
    "--binding isolated without GPUs: add": {"binding": Binding.ISOLATED, "cpu_only": True},
    "--binding isolated without": {"binding": Binding.ISOLATED},  # the site states no GPUs
    "--binding full_view without": {"binding": Binding.FULL_VIEW, "gpus": 0},
    "--fallback: site generic-slurm has no": {"fallback": True},
    "no program to run": {"program": ()},
    "--python /a/python and --stage-environment: choose": {
        "python": "/a/python",
        "stage_environment": "b",
    },
    "--container and --stage-environment: choose": {"container": "a", "stage_environment": "b"},
    "expected an option of the scheduler": {"directives": ("qos=debug",)},
    "--account 'a.b' expected one": {"account": "a\nb"},
}


@pytest.mark.parametrize(("message", "options"), WRONG.items(), ids=WRONG)
def test_what_does_not_fit(message, options):
    with pytest.raises(UsageError) as raised:
        of(**options)
    said = str(raised.value)
    assert message.replace("a.b", "a\\nb").replace("' expected", "': expected") in said
    assert "\n" not in said


TEXTS = [
    *("ranks", "time", "account", "partition", "array", "name", "signal", "mpi", "python"),
    *("container", "stage_environment"),
]


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("empty", ["", " "])
def test_empty_values(name, empty):
    option = f"--{name.replace('_', '-')}"
    with pytest.raises(UsageError, match=f"{option} '{empty}': expected one line of text, not em"):
        of(**{name: empty})


@pytest.mark.parametrize(
    ("strategy", "options", "message"),
    [
        (Strategy.ONE_DEVICE, {"nodes": 2}, "one_device is for one node"),
        (Strategy.ONE_DEVICE, {"tasks_per_node": 2}, "one_device is one rank"),
        (Strategy.CENTRAL_STORAGE, {"nodes": 2}, "central_storage is for one node"),
        (Strategy.PARAMETER_SERVER, {"ps": None}, "--ps is for parameter_server, which needs it"),
        (Strategy.PARAMETER_SERVER, {"ps": 0}, "--ps 0: expected 1 or more"),
        (Strategy.PARAMETER_SERVER, {"ps": 3}, "--ps 3 needs 5 ranks or more .* the job has 4"),
        (Strategy.ARRAY, {"array": None}, "strategy array without --array"),
        (Strategy.SCALING, {"array": "0-1"}, "--array with strategy scaling"),
    ],
)
def test_what_a_strategy_refuses(strategy, options, message):
    with pytest.raises(UsageError, match=message):
        of(strategy=strategy, **options)


def test_a_site_says_how_many_ranks_a_node_takes():
    assert "--ntasks-per-node=4" in directives(of("perlmutter"))
    assert "--ntasks-per-node=2" in directives(of("perlmutter", tasks_per_node=2))
    # Of MareNostrum only the GPUs of a node are known, and its cores.
    lines = directives(of("marenostrum5"))
    assert {"--ntasks-per-node=4", "--cpus-per-task=20"} <= set(lines)
    with pytest.raises(UsageError, match="does not say how many ranks a node takes"):
        of(tasks_per_node=None)


def test_cpus_are_shared_by_more_ranks_than_usual():
    assert "--cpus-per-task=32" in directives(of("perlmutter"))
    assert "--cpus-per-task=16" in directives(of("perlmutter", tasks_per_node=8))
    assert "--cpus-per-task=32" in directives(of("perlmutter", tasks_per_node=1))
    with pytest.raises(UsageError, match=r"4 tasks per node x 64 CPUs per task: .* has 128"):
        of("perlmutter", cpus_per_task=64)


def test_gpus():
    assert "--gpus-per-node=2" in directives(of(gpus=2))
    assert "--gpus-per-node=2" in directives(of("perlmutter", gpus=2))
    assert "--gpus=8" in directives(of("expanse", nodes=2))  # Expanse counts those of the job
    for none in ({"gpus": 0, "tasks_per_node": 4}, {"cpu_only": True}):
        script = of("lumi-g", **none)
        assert not [line for line in directives(script) if "gpu" in line]
        assert "--gpu" not in " ".join(words_of(script, "start"))
    with pytest.raises(UsageError, match=r"--gpus 5: expected 0 to 4, as docs\.nersc\.gov"):
        of("perlmutter", gpus=5)
    with pytest.raises(UsageError, match="jobs on stampede3 get whole nodes of 4 GPUs"):
        of("stampede3", gpus=2)


def test_fewer_ranks_than_slots():
    lines = directives(of(ranks="3", nodes=2))
    assert {"--nodes=2", "--ntasks-per-node=2", "--ntasks=3"} <= set(lines)
    assert "--ntasks-per-node=3" in directives(of(ranks="5", nodes=2, tasks_per_node=None))
    assert "--ntasks=3" in directives(of("vista", ranks="3", nodes=3))


def test_each_rank_takes_its_gpu_by_the_sites_map():
    assert "\nexport MPISTRAT_GPU_ORDER=3,2,1,0 " in of("perlmutter")
    for others in ({"gpus": 2}, {"binding": Binding.ISOLATED}, {"cpu_only": True}):
        assert "MPISTRAT_GPU_ORDER" not in of("perlmutter", **others)
    start = words_of(of("frontier"), "start")
    assert {"--gpus-per-task=1", "--gpu-bind=closest"} <= set(start)
    assert "--gpus-per-task=1" not in words_of(of("frontier", binding=Binding.FULL_VIEW), "start")
    assert "--gpus-per-task=1" in words_of(of(gpus=2, binding=Binding.ISOLATED), "start")


def test_cpu_masks_are_for_full_nodes():
    def masks(**others):
        return [word for word in words_of(of("lumi-g", **others), "start") if "mask_cpu" in word]

    assert len(masks()) == 1
    assert masks(tasks_per_node=4) == []


SCALE = ("mpistrat", "bench", "scale")


def test_scaling_runs_on_powers_of_two():
    assert "shuf -e 1 2 4 6)" in of(strategy=Strategy.SCALING, nodes=3)
    assert "shuf -e 1 3)" in of(strategy=Strategy.SCALING, nodes=2, ranks="1,3")
    other = of(strategy=Strategy.SCALING, program=(), container="a.sif")
    assert "program=(mpistrat bench collectives)" in other
    suite = of(strategy=Strategy.SCALING, program=(), nodes=2, ranks="1,3", time="1:00:00")
    assert "\nsuite=(mpistrat bench scale cluster --resume)\n" in suite
    for option in ("--ranks=1,3", "--nodes=2", "--per-node=2", "--budget=3480"):
        assert f"\nsuite+=({option})\n" in suite
    short = of(strategy=Strategy.SCALING, program=(), nodes=2, time="4:00")
    assert "\nsuite+=(--budget=180)\n" in short
    assert "--ranks" not in short.partition("\nsuite=")[2]
    assert "\nprogram=()\n" in suite
    own = ("--output=x.jsonl", "--budget", "600", "--ranks", "4", "--report", "y.html")
    given = of(strategy=Strategy.SCALING, ranks="1,3", program=(*SCALE, "a b.toml", *own))
    assert f"\nsuite=(mpistrat bench scale 'a b.toml' {' '.join(own)} --resume)\n" in given
    added = [line for line in given.splitlines() if line.startswith("suite+=")]
    assert [line[10:].partition("=")[0] for line in added] == ["launch", "nodes", "per-node"]
    exact = ["--exact", '"--nodes=$nodes"', '"--ntasks=$ranks"', '"--ntasks-per-node=$per_node"']
    assert set(exact) <= set(words_of(suite, "start"))
    assert "--signal" not in suite


@pytest.mark.parametrize(
    ("time", "seconds"), [("2:00:00", 300), ("12:00", 300), ("8:00", 120), ("4:00", 60)]
)
def test_short_jobs_are_told_of_their_end_later(time, seconds):
    script = of(time=time)
    assert f"--signal=USR1@{seconds}" in directives(script)
    assert f"\nexport MPISTRAT_SIGNAL_LEAD={seconds} " in script


def test_the_signal():
    script = rendered("generic-slurm", Strategy.MIRRORED, time="3:00")
    assert "--signal" not in script.text
    assert "a job of 180 s is not told of its end: it is too short for that" in script.notices
    assert "signal" not in " ".join(directives(of(signal="none")))
    assert "--signal=TERM@90" in directives(of(signal="TERM@90"))
    assert "\nexport MPISTRAT_SIGNAL_LEAD=90 " in of(signal="TERM@90")
    assert "SIGNAL_LEAD" not in of(signal="none")
    script = of("vista", signal="USR2@90")
    assert "--signal=B:USR2@90" in directives(script)
    assert "trap 'tell USR2' USR2\n" in script


@pytest.mark.parametrize("spelling", ["USR1@90", "usr1@90", "SIGUSR1@90", "10@90"])
def test_spellings_of_a_signal(spelling):
    assert "--signal=USR1@90" in directives(of(signal=spelling))
    assert "tell()" not in of(signal=spelling)


@pytest.mark.parametrize("signal", ["B:USR1@60", "b:10@60"])
def test_a_signal_for_the_script_is_passed_on(signal):
    script = of(signal=signal)
    assert "--signal=B:USR1@60" in directives(script)
    assert "\nexport MPISTRAT_SIGNAL_LEAD=60 " in script
    assert "trap 'tell USR1' USR1\n" in script
    assert "# The signal comes to this script alone. So each rank" in script


@pytest.mark.parametrize(
    ("time", "signal", "instead"),
    [
        ("2:00", "USR1@300", "a longer --time, or"),
        ("6:00", "B:USR1@300", "--signal USR1@90, or"),
        ("2:00", "TERM@60", "a longer --time, or"),
    ],
)
def test_a_signal_at_the_start_of_a_job_is_refused(time, signal, instead):
    with pytest.raises(UsageError) as raised:
        of(time=time, signal=signal)
    said = str(raised.value)
    assert said.startswith(f"--signal {signal}: a job of {60 * int(time[0])} s may get it at its ")
    assert f"give it {instead}" in said


def test_a_signal_that_leaves_little_time_is_told():
    def notices(time):
        script = rendered("generic-slurm", Strategy.MIRRORED, time=time, signal="USR1@300")
        return [notice for notice in script.notices if notice.startswith("--signal")]

    (notice,) = notices("6:30")
    assert "USR1@300: a job of 390 s may get it after 30 s, and runs no longer" in notice
    assert notices("12:00") == notices("2:00:00") == []


@pytest.mark.parametrize("options", [{"signal": "B:USR1@60"}, {"signal": "USR1@60"}])
def test_a_signal_that_would_end_the_scaling_suite(options):
    site = "generic-slurm" if options["signal"].startswith("B:") else "vista"
    with pytest.raises(UsageError, match="with strategy scaling: the script would end by it"):
        of(site, strategy=Strategy.SCALING, **options)


def test_what_other_launchers_and_schedulers_do_not_have():
    with pytest.raises(UsageError, match="--mpi pmix is for srun; vista has ibrun: leave it out"):
        of("vista", mpi="pmix")
    with pytest.raises(UsageError, match="--signal USR1@60: PBS Pro sends no signal early"):
        of("polaris", signal="USR1@60")


def test_the_type_of_mpi():
    assert "--mpi=pmix" in words_of(of(mpi="pmix"), "start")
    found = Here(mpi=Mpi("srun", "pmi2", (), "this is MPICH"))
    assert "--mpi=pmi2" in words_of(of(here=found), "start")
    # What was found goes before the site's, and the user is told.
    script = rendered("aws-parallelcluster", Strategy.MIRRORED, here=found)
    assert "--mpi=pmi2" in words_of(script.text, "start")
    assert (
        "--mpi=pmi2, where aws-parallelcluster states --mpi=pmix: this is MPICH" in script.notices
    )
    assert "--mpi=pmix" in words_of(of("aws-parallelcluster", here=found, container="a"), "start")
    silent = rendered("generic-slurm", Strategy.MIRRORED)
    assert any(notice.startswith("no --mpi is in the script") for notice in silent.notices)
    assert not any(word.startswith("--mpi") for word in words_of(silent.text, "start"))


@pytest.mark.parametrize("text", ["pmi2 $(touch ran)", "pmi2;id", "a b", "`id`", "pmi2\n"])
def test_a_type_of_mpi_that_is_no_name(text):
    with pytest.raises(UsageError, match=r"--mpi '.*': expected a type that `srun --mpi=list`"):
        of(mpi=text)


def test_the_fallback_of_networks_that_hang():
    usual, fallback = (of("polaris", nodes=10, fallback=fallback) for fallback in (False, True))
    assert 'export NCCL_NET="AWS Libfabric"' in usual
    assert "\nunset -v NCCL_NET\n" in fallback
    assert "export NCCL_NET=" not in fallback
    assert "# NCCL hangs or times out with the plug-in" in fallback
    assert "\nexport NCCL_SOCKET_IFNAME=hsn0 " in of("frontier", fallback=True)


def test_variables_of_jobs_of_several_nodes():
    assert "NCCL_NET=OFI" not in of("frontier", nodes=1)
    assert "NCCL_NET=OFI" in of("frontier", strategy=Strategy.MULTI_WORKER, nodes=2)


def test_containers():
    assert words_of(of("perlmutter", container="a:1"), "container")[0] == "shifter"
    assert "--image=a:1" in directives(of("perlmutter", container="a:1"))
    start = words_of(of("aws-parallelcluster", container="a.sqsh"), "start")
    assert {"--container-image=a.sqsh", '--container-mounts="$PWD:$PWD"'} <= set(start)
    assert "--environment=my.toml" in words_of(of("alps", container="my.toml"), "start")
    words = words_of(of("leonardo", container="a.sif"), "container")
    assert words[0] == "singularity exec"
    assert '--bind="/leonardo"' in words
    assert words.count("--nv") == 1
    assert "--rocm" in words_of(of("frontier", container="a.sif"), "container")


@pytest.mark.parametrize(
    ("gpus", "ranks", "said"),
    [
        (1, 2, "2 ranks of a node share 1 GPU, and take turns on it; --tasks-per-node 1 gives"),
        (2, 4, "4 ranks of a node share 2 GPUs, and take turns on them; --tasks-per-node 2 gives"),
        (4, 4, None),
        (4, 2, None),
        (0, 4, None),
    ],
)
def test_ranks_that_share_a_gpu_are_told(gpus, ranks, said):
    script = rendered("generic-slurm", Strategy.MULTI_WORKER, gpus=gpus, tasks_per_node=ranks)
    found = [notice for notice in script.notices if "share" in notice]
    assert [notice.startswith(said or "") for notice in found] == [True] * (said is not None)


def test_staging_an_environment():
    script = of("frontier", stage_environment="/my env")
    assert "environment='/my env'" in script
    assert 'staged="/mnt/bb/$USER/mpistrat-environment-$SLURM_JOB_ID"' in script
    assert "-C nvme" in directives(script)  # without it Frontier's nodes have no disk
    with pytest.raises(UsageError, match="goes by sbcast and srun; vista has ibrun"):
        of("vista", stage_environment="/env")
    notices = rendered("lumi-g", Strategy.MIRRORED, stage_environment="/env").notices
    assert any("/tmp is memory of the job" in notice for notice in notices)


def test_a_time_beyond_the_partitions_limit_is_told():
    def notices(time, nodes):
        script = rendered("frontier", Strategy.MULTI_WORKER, time=time, nodes=nodes)
        return [notice for notice in script.notices if notice.startswith("--time")]

    assert notices("2:00:00", 90) == []
    assert "batch takes jobs of at most 02:00:00" in notices("2:00:01", 91)[0]
    assert notices("2:00:01", 92) == []


def test_options_are_given_by_their_names():
    assert Options(Strategy.ARRAY, ("a.py",), array="0-1").job_name == "a"


@pytest.mark.parametrize(
    ("name", "strategy"),
    [
        ("multi_worker", Strategy.MULTI_WORKER),
        ("multi-worker", Strategy.MULTI_WORKER),
        ("MultiWorkerMirroredStrategy", Strategy.MULTI_WORKER),
        ("tf.distribute.MirroredStrategy", Strategy.MIRRORED),
        ("mpistrat.TPUStrategy", Strategy.TPU_SLICES),
        ("OneDeviceStrategy", Strategy.ONE_DEVICE),
        ("CentralStorageStrategy", Strategy.CENTRAL_STORAGE),
        ("ParameterServerStrategy", Strategy.PARAMETER_SERVER),
        ("Scaling", Strategy.SCALING),
    ],
)
def test_spellings_of_a_strategy(name, strategy):
    assert strategy_of(name) is strategy


def test_spellings_of_a_binding():
    assert binding_of("full-view") is Binding.FULL_VIEW
    with pytest.raises(UsageError, match="--binding 'one': expected full_view or isolated"):
        binding_of("one")


def test_the_python_of_an_image():
    assert "program=(python3 a.py)" in of(container="a.sif", program=("a.py",))
    here = Here("/here/bin", "python3.12")
    script = of(container="a.sif", python="/opt/bin/python", program=("a.py",), here=here)
    assert "program=(/opt/bin/python a.py)" in script
    assert "export PATH=" not in script
    assert " --python /opt/bin/python " in script  # in its heading
