"""A notice that this machine will be taken away calls a hook."""

import threading
import time

import pytest

pytest.importorskip("tensorflow")

import mpistrat
from helpers.pretend.cloud import pretend_cloud
from helpers.pretend.tpus import PretendResolver, initialized
from helpers.tf.process import four_cpus
from mpistrat.tensorflow.tpu.preemption import PreemptionWatch

four_cpus()


@pytest.fixture
def cloud(monkeypatch):
    with pretend_cloud(monkeypatch) as made:
        yield made


@pytest.mark.parametrize(
    ("announced", "value"),
    [
        ("instance/preempted", "TRUE"),
        ("instance/maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE"),
    ],
)
def test_a_preemption_calls_the_hook_once(cloud, announced, value):
    cloud.metadata.update({"instance/preempted": "FALSE", "instance/maintenance-event": "NONE"})
    calls, is_called = [], threading.Event()

    def hook(what):
        calls.append(what)
        is_called.set()

    watch = PreemptionWatch(hook, every_s=0.01)
    assert not is_called.wait(0.2)
    cloud.metadata[announced] = value
    assert is_called.wait(10)
    time.sleep(0.1)
    watch.close()
    assert calls == [announced]


def test_a_strategy_watches_for_its_preemption(cloud):
    cloud.metadata["instance/preempted"] = "TRUE"
    is_called = threading.Event()
    with (
        initialized(),
        mpistrat.TPUStrategy(PretendResolver(), on_preemption=lambda _: is_called.set()),
    ):
        assert is_called.wait(10)


def test_an_error_ends_the_watch(cloud):
    with initialized():
        s = mpistrat.TPUStrategy(PretendResolver(), on_preemption=lambda _: None)
        with pytest.raises(OSError, match="a disk"), s:
            raise OSError("a disk")
    s._watch._thread.join(20)
    assert not s._watch._thread.is_alive()


def test_a_hook_that_fails_is_logged(cloud, caplog):
    cloud.metadata["instance/preempted"] = "TRUE"

    def hook(_):
        raise OSError("a disk")

    watch = PreemptionWatch(hook)
    watch._thread.join(10)
    assert "the hook for the preemption of this machine failed" in caplog.text
