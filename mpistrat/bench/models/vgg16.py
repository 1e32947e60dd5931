"""The shapes of VGG16's gradients: 32 tensors, 138 357 544 elements."""

from __future__ import annotations

from itertools import pairwise

from mpistrat.bench.models.gradient_set import Shape

__all__ = ["gradient_shapes"]

_WIDTHS = (64, 64, 128, 128, 256, 256, 256, *(512,) * 6)
_DENSE = (7 * 7 * 512, 4096, 4096, 1000)


def gradient_shapes() -> list[Shape]:
    """Return the shape of each trainable tensor, in the order of the forward pass.

    Kernels are (height, width, in, out), as in TensorFlow; three quarters of all elements are in
    the first dense layer.

    References
    ----------
    Simonyan and Zisserman 2014, Very Deep Convolutional Networks for Large-Scale Image
    Recognition, table 1, column D; arXiv:1409.1556. Keras counts 138,357,544 parameters:
    https://keras.io/api/applications/.
    """
    convolutions = pairwise((3, *_WIDTHS))
    shapes: list[Shape] = [one for a, b in convolutions for one in ((3, 3, a, b), (b,))]
    return [*shapes, *(one for a, b in pairwise(_DENSE) for one in ((a, b), (b,)))]
