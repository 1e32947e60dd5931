"""The shapes of ResNet-50's gradients: 161 tensors, 25 557 032 elements."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["gradient_shapes"]

_STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
_EXPANSION = 4
_CLASSES = 1000


def gradient_shapes() -> list[tuple[int, ...]]:
    """Return the shape of each trainable tensor, in the order of the forward pass.

    Kernels are (height, width, in, out), as in TensorFlow; a batch normalisation has two tensors.

    References
    ----------
    He et al. 2015, Deep Residual Learning for Image Recognition, table 1 (50-layer), option B;
    doi:10.1109/CVPR.2016.90.
    """
    shapes = [*_convolution(7, 3, 64)]
    width_in = 64
    for width, blocks in _STAGES:
        for block in range(blocks):
            shapes += _bottleneck(width_in, width, has_projection=block == 0)
            width_in = width * _EXPANSION
    return [*shapes, (width_in, _CLASSES), (_CLASSES,)]


def _bottleneck(width_in: int, width: int, has_projection: bool) -> Iterator[tuple[int, ...]]:
    yield from _convolution(1, width_in, width)
    yield from _convolution(3, width, width)
    yield from _convolution(1, width, width * _EXPANSION)
    if has_projection:
        yield from _convolution(1, width_in, width * _EXPANSION)


def _convolution(side: int, width_in: int, width_out: int) -> Iterator[tuple[int, ...]]:
    """Yield the kernel of a convolution, and its normalisation's scale and shift."""
    yield (side, side, width_in, width_out)
    yield (width_out,)
    yield (width_out,)
