"""A loop over data that is left early: the threads that read ahead end before Python does."""

from mpistrat.testing.launcher import run_job

LEFT = """
import numpy as np
import mpistrat
from mpistrat.data import Dataset
strategy = mpistrat.MirroredStrategy()
rows = np.arange(400.0).reshape(200, 2)
data = Dataset.from_tensor_slices({"a": rows, "b": rows}).map(lambda row: row).batch(4).repeat()
for batch in strategy.experimental_distribute_dataset(data):
    break
print("left", flush=True)
"""


def test_the_program_ends_well():
    for _ in range(5):  # a half of such programs was aborted
        job = run_job(["-c", LEFT], 2, 60)
        assert job.returncode == 0, job.output
        assert [rank.stdout.strip() for rank in job.ranks] == ["left", "left"]
