"""The operation for tensors on GPUs compiles with TensorFlow's headers, and is for GPUs alone.

What it does is tested in tests/gpu/tensorflow.
"""

import pytest

tf = pytest.importorskip("tensorflow")

from mpistrat.tensorflow.graph import native_library  # noqa: E402 - TensorFlow may be missing
from mpistrat.testing.sets import takes_long  # noqa: E402


@takes_long()
@pytest.mark.deadline(200)
def test_it_is_registered_for_gpus_alone():
    from tensorflow.python.framework import kernels

    found = native_library.opened("gpu_call_op.cc", "not compiled")
    assert found is not None
    registered = kernels.get_registered_kernels_for_op("MpistratGpuCall").kernel
    assert [kernel.device_type for kernel in registered] == ["GPU"]
    if not tf.config.list_physical_devices("GPU"):
        with pytest.raises(tf.errors.OpError, match="MpistratGpuCall"):
            found[0].mpistrat_gpu_call([tf.ones([3])], key=1, in_place=True)
