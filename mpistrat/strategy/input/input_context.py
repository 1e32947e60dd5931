"""`InputContext`, and the options of the input."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, NamedTuple

from mpistrat.errors import ArgumentTypeError, UsageError

__all__ = [
    "AutoShardPolicy",
    "InputContext",
    "InputOptions",
    "InputReplicationMode",
    "RunOptions",
    "ValueContext",
]


class AutoShardPolicy(enum.IntEnum):
    """How one dataset is shared out over the ranks; numbers as in ``tf.data.experimental``.

    AUTO and DATA cut every global batch over all replicas, so each rank walks the whole dataset.
    OFF lets each rank keep all of its own. FILE and HINT need datasets that know their files;
    arrays have none, so they are refused.
    """

    OFF = -1
    AUTO = 0
    FILE = 1
    DATA = 2
    HINT = 3


class InputReplicationMode(enum.Enum):
    """How often a dataset function is called: once a rank, or once a replica."""

    PER_WORKER = "PER_WORKER"
    PER_REPLICA = "PER_REPLICA"


class InputContext:
    """Tell a dataset function which part of the input it is to provide.

    Parameters
    ----------
    num_input_pipelines
        How many datasets feed the job: the ranks, or the replicas with PER_REPLICA.
    input_pipeline_id
        Which of them this one is, from 0.
    num_replicas_in_sync
        Replicas over all ranks.
    """

    __slots__ = ("_input_pipeline_id", "_num_input_pipelines", "_num_replicas_in_sync")

    def __init__(
        self,
        num_input_pipelines: int = 1,
        input_pipeline_id: int = 0,
        num_replicas_in_sync: int = 1,
    ) -> None:
        self._num_input_pipelines = num_input_pipelines
        self._input_pipeline_id = input_pipeline_id
        self._num_replicas_in_sync = num_replicas_in_sync

    @property
    def num_input_pipelines(self) -> int:
        """Return the number of datasets that feed the job."""
        return self._num_input_pipelines

    @property
    def input_pipeline_id(self) -> int:
        """Return the index of this dataset among them."""
        return self._input_pipeline_id

    @property
    def num_replicas_in_sync(self) -> int:
        """Return the number of replicas over all ranks."""
        return self._num_replicas_in_sync

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """Return the rows that each replica gets of a global batch.

        Raises
        ------
        UsageError
            The replicas do not divide `global_batch_size`. It is a ValueError.
        """
        replicas = self._num_replicas_in_sync
        if global_batch_size % replicas:
            raise UsageError(
                f"global_batch_size={global_batch_size!r} is not divisible by"
                f" num_replicas_in_sync={replicas}; take a multiple of {replicas}, such as"
                f" {-(-global_batch_size // replicas) * replicas}"
            )
        return global_batch_size // replicas

    def __repr__(self) -> str:
        return (
            f"mpistrat.InputContext(input pipeline id {self._input_pipeline_id},"
            f" total: {self._num_input_pipelines})"
        )


class ValueContext:
    """Tell a value function for which replica it is called.

    Parameters
    ----------
    replica_id_in_sync_group
        The replica, counted over all ranks from 0.
    num_replicas_in_sync
        Replicas over all ranks.
    """

    __slots__ = ("_num_replicas_in_sync", "_replica_id_in_sync_group")

    def __init__(self, replica_id_in_sync_group: int = 0, num_replicas_in_sync: int = 1) -> None:
        self._replica_id_in_sync_group = replica_id_in_sync_group
        self._num_replicas_in_sync = num_replicas_in_sync

    @property
    def replica_id_in_sync_group(self) -> int:
        """Return the replica, counted over all ranks."""
        return self._replica_id_in_sync_group

    @property
    def num_replicas_in_sync(self) -> int:
        """Return the number of replicas over all ranks."""
        return self._num_replicas_in_sync

    def __repr__(self) -> str:
        return (
            f"mpistrat.ValueContext(replica id {self._replica_id_in_sync_group},"
            f" total replicas in sync: {self._num_replicas_in_sync})"
        )


@dataclass(frozen=True)
class InputOptions:
    """Options of the calls that distribute datasets; the fields of ``tf.distribute.InputOptions``.

    Parameters
    ----------
    experimental_fetch_to_device
        Whether batches of replicas on GPUs are copied there ahead of their use; False leaves them
        on the host. None means True.
    experimental_replication_mode
        Whether a dataset function is called once a rank or once a replica.
    experimental_place_dataset_on_device
        Accepted for programs that set it; the arrays are on the host.
    experimental_per_replica_buffer_size
        Steps that are prepared ahead, per local replica; 0 prepares none and starts no thread.
    auto_shard_policy
        How one dataset is shared out over the ranks. TensorFlow keeps this in the dataset's own
        options; arrays have none, so it is here.
    """

    experimental_fetch_to_device: bool | None = None
    experimental_replication_mode: InputReplicationMode = InputReplicationMode.PER_WORKER
    experimental_place_dataset_on_device: bool = False
    experimental_per_replica_buffer_size: int = 1
    auto_shard_policy: AutoShardPolicy = AutoShardPolicy.AUTO

    def __post_init__(self) -> None:
        if self.experimental_fetch_to_device is None:
            object.__setattr__(self, "experimental_fetch_to_device", True)
        if not isinstance(self.experimental_replication_mode, InputReplicationMode):
            raise ArgumentTypeError(
                f"experimental_replication_mode={self.experimental_replication_mode!r}: expected"
                " InputReplicationMode.PER_WORKER or InputReplicationMode.PER_REPLICA"
            )
        size = self.experimental_per_replica_buffer_size
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise UsageError(
                f"experimental_per_replica_buffer_size={size!r}: expected a whole number of"
                " batches, 0 for no prefetching"
            )
        try:
            policy = AutoShardPolicy(self.auto_shard_policy)
        except ValueError:
            raise UsageError(
                f"auto_shard_policy={self.auto_shard_policy!r}: expected a member of"
                f" AutoShardPolicy, one of {', '.join(p.name for p in AutoShardPolicy)}"
            ) from None
        object.__setattr__(self, "auto_shard_policy", policy)


class RunOptions(NamedTuple):
    """Options of ``run``; the fields of ``tf.distribute.RunOptions``, all for TPUs only."""

    experimental_enable_dynamic_batch_size: bool = True
    experimental_bucketizing_dynamic_shape: bool = False
    experimental_xla_options: Any = None
