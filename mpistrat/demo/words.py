"""The README's example of parameter servers: learn vectors of the words in Python's manual."""

import re
import sys
from collections.abc import Iterator
from pydoc_data.topics import topics  # English text that comes with Python

import numpy as np

import mpistrat

BATCH, AWAY, NEGATIVES, STEPS = 256, 2, 5, 6000

TEXT = re.findall("[a-z]+", " ".join(topics.values()).lower())
NAMES, IDS, COUNTS = np.unique(TEXT, return_inverse=True, return_counts=True)


def pairs() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield words, and a word near each of them followed by words from anywhere, for ever."""
    draw = np.random.default_rng()
    while True:
        at = draw.integers(AWAY, len(IDS) - AWAY, BATCH)
        away = draw.integers(1, AWAY + 1, BATCH) * draw.choice([-1, 1], BATCH)
        anywhere = IDS[draw.integers(0, len(IDS), (BATCH, NEGATIVES))]
        yield IDS[at], np.column_stack([IDS[at + away], anywhere])


def main(resolver: mpistrat.cluster_resolver.ClusterResolver, steps: int = STEPS) -> None:
    """Train on the chief's workers, and print what was learned."""
    partitioner = mpistrat.experimental.partitioners.FixedShardsPartitioner(2)
    strategy = mpistrat.ParameterServerStrategy(resolver, partitioner)
    coordinator = mpistrat.coordinator.ClusterCoordinator(strategy)
    draw = np.random.default_rng(0)
    with strategy.scope():  # half of the rows on each ps
        first = draw.normal(0, 0.1, (len(NAMES), 32)).astype(np.float32)
        words = mpistrat.Variable(first, name="words")
        near = mpistrat.Variable(np.zeros_like(first), name="near")
        optimizer = mpistrat.optimizers.Adagrad(0.3)
        optimizer.build([words, near])

    def step(batches: Iterator[tuple[np.ndarray, np.ndarray]]) -> float:
        """Pull some rows, push their gradients (word2vec's skip-gram); return the loss."""
        word, others = next(batches)
        rows = mpistrat.nn.embedding_lookup(words, word)
        others_rows = mpistrat.nn.embedding_lookup(near, others)
        likely = 1 / (1 + np.exp(-np.einsum("bd,bnd->bn", rows, others_rows)))
        wrong = likely - (np.arange(NEGATIVES + 1) == 0)  # the first should be 1, the others 0
        of_words = np.einsum("bn,bnd->bd", wrong, others_rows) / BATCH
        of_near = wrong[..., None] * rows[:, None] / BATCH
        slices = mpistrat.IndexedSlices
        optimizer.apply_gradients(
            [
                (slices(of_words, word), words),
                (slices(of_near.reshape(-1, 32), others.reshape(-1)), near),
            ]
        )
        return -float(np.log(np.abs(1 - np.abs(wrong)) + 1e-9).mean())

    batches = iter(coordinator.create_per_worker_dataset(pairs))
    losses = [coordinator.schedule(step, args=(batches,)) for _ in range(steps)]
    coordinator.join()
    found = np.array(coordinator.fetch(losses))
    print(f"loss {found[:50].mean():.3f} at first, {found[-50:].mean():.3f} in the end")
    vectors = words.numpy()
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    for name in ("try", "list"):
        close = np.argsort(vectors @ vectors[NAMES.searchsorted(name)])[-5:-1]
        print(f"{name}: near {', '.join(NAMES[close[::-1]])}")
    strategy.close()


if __name__ == "__main__":
    resolver = mpistrat.cluster_resolver.MPIClusterResolver(num_ps=2)
    if resolver.task_type == "chief":
        main(resolver, *map(int, sys.argv[1:]))  # as many steps as the command line says
    else:
        mpistrat.Server(resolver).join()
