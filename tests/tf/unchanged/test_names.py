"""Names of tf.distribute give a program our classes; private ones are warned of."""

from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import takes_long

pytestmark = [pytest.mark.deadline(150), takes_long()]

PROGRAM = Path(__file__).with_name("programs") / "names.py"
RUN = ["-m", "mpistrat", "run"]
REFUSED = "say how many of the ranks are to be parameter servers: mpistrat run --ps 1 ...\n"


def test_names_and_notes(tmp_path):
    result = run_job([*RUN, "--explain", str(PROGRAM), "2"], 2, 100, cwd=tmp_path).check()
    for output in result.ranks:
        assert output.stdout.endswith(REFUSED), output.text
    said = result.ranks[0].stderr
    for note in (
        "names.py:11 imports tensorflow.python.distribute.mirrored_strategy",
        "devices=['/gpu:0', '/gpu:1'] are those of a machine that now has 2 ranks",
        "devices=['/cpu:0', '/cpu:1'] are more CPUs than TensorFlow has",
        "the program's SimpleClusterResolver is replaced by what MPI says: 2 worker",
        "names.py:9: tf.compat.v1.distribute.MirroredStrategy is mpistrat.tensorflow.",
        "names.py:10: tf.distribute.experimental.CentralStorageStrategy is mpistrat.tensorflow.",
        "names.py:11: tensorflow.python.distribute.mirrored_strategy is TensorFlow's own",
    ):
        assert note in said
    assert "in use before the strategy" not in said  # threads are shared when it is imported
    assert "mpistrat run: rank" not in result.ranks[1].stderr


def test_devices_that_one_rank_lacks(tmp_path):
    lines = []
    for devices in (["/gpu:0", "/gpu:1"], ["/gpu:0"], ["/cpu:0", "/cpu:1"]):
        lines.append(f"with tf.distribute.MirroredStrategy({devices}) as strategy:")
        lines.append("    assert strategy.num_replicas_in_sync == 1")
    (tmp_path / "train.py").write_text("\n".join(["import tensorflow as tf", *lines]))
    (output,) = run_job([*RUN, "train.py"], 1, 60, cwd=tmp_path).check().ranks
    assert "GPUs, and TensorFlow has none here: each rank uses its first CPU" in output.stderr


def test_an_error_on_one_rank_ends_the_job(tmp_path):
    (tmp_path / "train.py").write_text(
        "import json, os\n"
        "task = json.loads(os.environ['TF_CONFIG'])['task']\n"
        "if task['index'] == 1:\n"
        "    raise LookupError('on one rank')\n"
        "import tensorflow as tf\n"
        "tf.distribute.MirroredStrategy()\n"
    )
    result = run_job([*RUN, "train.py"], 2, 60, cwd=tmp_path)
    assert result.returncode != 0
    assert not result.timed_out
    lines = result.ranks[1].stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].endswith('train.py", line 4, in <module>')
    assert "LookupError: on one rank" in lines
