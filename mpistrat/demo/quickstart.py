"""The example of the README: fit a line, each replica on its share of the points."""

import numpy as np

import mpistrat

strategy = mpistrat.MirroredStrategy()  # one replica on each rank
with strategy.scope():
    slope = mpistrat.Variable(0.0, aggregation=mpistrat.VariableAggregation.SUM)


def step(x: np.ndarray) -> np.ndarray:
    """Learn y = 3 x from this replica's share of a batch; return the errors."""
    error = slope.value() * x - 3 * x
    slope.assign_sub(np.sum(error * x) / 20)  # summed over all replicas, on each of them
    return abs(error)


points = mpistrat.data.Dataset.from_tensor_slices(np.linspace(-1, 1, 60)).shuffle(60)
for batch in strategy.experimental_distribute_dataset(points.repeat(20).batch(20)):
    errors = strategy.run(step, args=(batch,))
error = strategy.reduce("MEAN", errors, axis=0)
if strategy.communicator.rank == 0:
    print(f"replicas: {strategy.num_replicas_in_sync}, slope {slope:.2f}, error {error:.4f}")
