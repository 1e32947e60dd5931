"""Sizes of buffers, and those at which one way of a call gives way to another, as built in.

No setting changes them, unlike those of :mod:`mpistrat.config`. A table of ``mpistrat bench tune``
has some for its machine (collectives/backends/shared_memory/tuning.py); those within a machine are
in kernels/shm/default_tuning.h.
"""

MAX_COUNT = 2**30
"""Elements in one MPI message; longer arrays go in chunks (Open MPI refuses more than 2³¹-1)."""

INLINE_BYTES = 192
"""Payload that rides in the header of a small call (see collectives/checking/gate.py)."""

INLINE_MAX_RANKS = 32
"""Above this size headers carry no payload: their table grows with ranks²."""

# The three sizes between nodes are built-in figures: a table of tunings may have others.
SHORT_BYTES = 8 << 10
"""Up to here one rank of a node carries a reduction over the wire; above, every one its slice."""

RING_BYTES = 16 << 10
"""The shortest messages of a ring; below, an array's reduction takes fewer steps over the wire."""

RING_MOST_BYTES = 60 << 10
"""The longest ones: MPI libraries send up to 64 KiB over TCP without asking the receiver first."""

GPU_BUFFER_BYTES = 8 << 20
"""Size of each buffer through which arrays on GPUs are carried; longer ones go in windows."""

GPU_MAPPED_BYTES = 64 << 20
"""That of each buffer in mapped memory of a GPU, which has room for 2048 of them; else less."""

GPU_SHORT_BYTES = 1 << 20
"""The longest arrays on GPUs that are all-reduced by the host, where NCCL does not carry them."""

TF_INLINE_BYTES = 64 << 10
"""Tensors up to so many bytes begin their call on TensorFlow's threads; it costs 50 µs less."""

GPU_ONE_SHOT_BYTES = 256 << 10
"""The longest arrays that one kernel all-reduces where NCCL carries the others,"""

GPU_ONE_SHOT_BYTES_OF_FEW = 512 << 10
"""and those of up to four ranks."""
