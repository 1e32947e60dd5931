"""A table of tunings for GPUs is checked; built-in sizes hold without one."""

import pytest

from mpistrat.collectives.backends.gpu.facts import Facts
from mpistrat.collectives.backends.gpu.tuning import GPU, GpuTuning, from_entry, gpu_key

KIB = 1 << 10


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8])
def test_built_in_figures(ranks):
    found = from_entry({}).filled(ranks)
    assert found.one_shot_bytes == (512 * KIB if ranks <= 4 else 256 * KIB)
    assert found.whole_bytes == (1 << 62 if ranks <= 3 else 1)
    assert (found.buffer_bytes, found.mapped_bytes) == (8 << 20, 64 << 20)


@pytest.mark.parametrize(
    ("gpu_bytes", "mapped_bytes"),
    [(143 << 30, 64 << 20), (80 << 30, 32 << 20), (40 << 30, 16 << 20), (4 << 30, 8 << 20)],
)
def test_a_smaller_gpu_has_shorter_buffers(gpu_bytes, mapped_bytes):
    assert GpuTuning().filled(2, gpu_bytes).mapped_bytes == mapped_bytes


def test_figures_of_a_table_go_before():
    tuning = GpuTuning(1, 2, 4096, 8192)
    assert tuning.filled(2) == tuning
    assert GpuTuning(1, 2, 4096).filled(2, 1 << 40) == GpuTuning(1, 2, 4096, 4096)
    assert from_entry({GPU: {"whole_bytes": 7}}) == GpuTuning(whole_bytes=7)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ([], "expected an object"),
        ({"gpus": {}}, r"kinds of call \['gpus'\]; expected some of \['gpu'\]"),
        ({GPU: {"bytes": 1}}, r"sizes \['bytes'\]"),
        ({GPU: {"buffer_bytes": 1.5}}, "buffer_bytes is 1.5; expected a whole number"),
        ({GPU: {"buffer_bytes": 4095}}, "buffer_bytes=4095: expected at least 4 KiB"),
        ({GPU: {"mapped_bytes": 4095}}, "mapped_bytes=4095: expected at least 4 KiB"),
        ({GPU: {"one_shot_bytes": 2**30 + 1}}, "one_shot_bytes=1073741825: expected at most"),
    ],
)
def test_wrong_entries_are_refused(entry, words):
    with pytest.raises(ValueError, match=words):
        from_entry(entry)


def test_entries_are_of_a_model_and_its_places():
    def one(host, bus):
        return Facts(host, "1", bus, "H200", False, 0, "auto", "auto", True)

    assert gpu_key([one("a", "1"), one("a", "1")]) == "H200, 2 ranks on 1 GPUs"
    assert gpu_key([one("a", "1"), one("b", "1")]) == "H200, 2 ranks on 2 GPUs of 2 nodes"
