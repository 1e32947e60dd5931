"""``tf.train`` for arrays: checkpoints."""

from mpistrat.checkpoint.checkpoint import Checkpoint
from mpistrat.checkpoint.files.pointer import latest_checkpoint
from mpistrat.checkpoint.manager import CheckpointManager
from mpistrat.checkpoint.objects.saveable import Part, Parted, Stateful
from mpistrat.checkpoint.status import CheckpointStatus

__all__ = [
    "Checkpoint",
    "CheckpointManager",
    "CheckpointStatus",
    "Part",
    "Parted",
    "Stateful",
    "latest_checkpoint",
]
