"""The option ``--cross-device-ops`` of the example for TensorFlow."""

from __future__ import annotations

import argparse
from typing import Any

__all__ = ["chosen"]


def chosen() -> Any:
    """Return what the command line wants to combine the replicas' gradients; None for mpistrat."""
    parser = argparse.ArgumentParser(prog="python -m mpistrat.demo.keras_digits")
    parser.add_argument(
        "--cross-device-ops",
        choices=["horovod"],
        help="let Horovod combine gradients (get it by: mpistrat horovod build)",
    )
    if parser.parse_args().cross_device_ops is None:
        return None
    import mpistrat.tensorflow as distribute

    return distribute.HorovodAllReduce()
