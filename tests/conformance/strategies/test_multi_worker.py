"""MultiWorkerMirroredStrategy keeps the contract, on every layout."""

import json
import os
from contextlib import contextmanager

import pytest

from mpistrat import MultiWorkerMirroredStrategy
from mpistrat.cluster_resolver import (
    ClusterResolver,
    ClusterSpec,
    MPIClusterResolver,
    SimpleClusterResolver,
    TFConfigClusterResolver,
)
from mpistrat.testing.layouts import LAYOUTS, Layout
from mpistrat.testing.sets import takes_long, with_all
from mpistrat.testing.strategies.base import rank_in
from mpistrat.testing.strategies.conformance import AllAreasConformance

SOME = LAYOUTS if with_all() else LAYOUTS[2:3]
ALONE = pytest.param(Layout(1, 1), marks=takes_long())


@contextmanager
def tf_config(cluster, task):
    """Set TF_CONFIG for the length of a block."""
    before = os.environ.get("TF_CONFIG")
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
    try:
        yield
    finally:
        del os.environ["TF_CONFIG"]
        if before is not None:
            os.environ["TF_CONFIG"] = before


@pytest.mark.parametrize("layout", [ALONE, *SOME], ids=str)
class TestMultiWorker(AllAreasConformance):
    resolver_class = ClusterResolver

    def strategy(self, layout: Layout) -> MultiWorkerMirroredStrategy:
        return MultiWorkerMirroredStrategy(devices=layout.device_names)

    def test_b110_the_resolver_given_is_the_resolver(self, layout: Layout) -> None:
        given = SimpleClusterResolver(ClusterSpec({"worker": ["a:1"]}), task_type="worker")
        with MultiWorkerMirroredStrategy(given, devices=layout.device_names) as strategy:
            assert strategy.cluster_resolver is given

    def test_e02_role_from_tf_config(self, layout: Layout) -> None:
        """One process takes its role from TF_CONFIG; under a launcher MPI knows better."""
        cluster = {"worker": ["host0:12345", "host1:23456"], "ps": ["host2:34567"]}
        with tf_config(cluster, {"type": "worker", "index": 0}), self.strategy(layout) as strategy:
            resolver = strategy.cluster_resolver
            assert resolver.task_type == "worker"
            assert resolver.task_id == rank_in(layout)
            if layout.ranks == 1:
                assert isinstance(resolver, TFConfigClusterResolver)
                assert resolver.cluster_spec().as_dict() == cluster
            else:
                assert isinstance(resolver, MPIClusterResolver)
                assert resolver.cluster_spec().num_tasks("worker") == layout.ranks
            branch = {"worker": "work", "ps": "serve"}[resolver.task_type]
            assert branch == "work"
