"""The shapes of the gradients of BERT and GPT-2, by layers, hidden size, vocabulary and positions.

Gradients of embeddings are dense here, as those of a matrix that is also the output layer's are.
"""

from __future__ import annotations

from dataclasses import dataclass

from mpistrat.bench.models.gradient_set import Shape

__all__ = ["BERT_LARGE", "GPT2", "GPT2_XL", "Transformer", "bert_shapes", "gpt2_shapes"]

_TOKEN_TYPES = 2
_EXPANSION = 4


@dataclass(frozen=True)
class Transformer:
    """The sizes of a transformer; the number of heads changes no shape."""

    layers: int
    hidden: int
    vocabulary: int
    positions: int


BERT_LARGE = Transformer(24, 1024, 30522, 512)
GPT2 = Transformer(12, 768, 50257, 1024)
GPT2_XL = Transformer(48, 1600, 50257, 1024)


def bert_shapes(size: Transformer) -> list[Shape]:
    """Return the shapes of an encoder with pooler, without the heads of pre-training.

    In the order of the forward pass: three embeddings and their normalisation, the layers with
    16 tensors each, the pooler. BERT-large has 391 tensors with 335 141 888 elements.

    References
    ----------
    Devlin et al. 2019, BERT, section 3 (340 M parameters); arXiv:1810.04805. The published
    checkpoint, bert-large-uncased, has 335,141,888 without the heads.
    """
    hidden = size.hidden
    rows = (size.vocabulary, size.positions, _TOKEN_TYPES)
    embeddings: list[Shape] = [*((count, hidden) for count in rows), *_norm(hidden)]
    layer = [*_linear(hidden, hidden) * 4, *_norm(hidden), *_feed_forward(hidden), *_norm(hidden)]
    return [*embeddings, *layer * size.layers, *_linear(hidden, hidden)]


def gpt2_shapes(size: Transformer) -> list[Shape]:
    """Return the shapes of a decoder, whose output layer is the embedding of the vocabulary.

    In the order of the forward pass: two embeddings, the layers with 12 tensors each, the last
    normalisation. GPT-2 has 148 tensors with 124 439 808 elements, GPT-2 XL 580 with
    1 557 611 200.

    References
    ----------
    Radford et al. 2019, Language Models are Unsupervised Multitask Learners, table 2, whose counts
    for the smallest and the largest model (117 M, 1542 M) were corrected to 124 M and 1558 M in
    https://github.com/openai/gpt-2.
    """
    hidden = size.hidden
    attention = [*_linear(hidden, 3 * hidden), *_linear(hidden, hidden)]
    layer = [*_norm(hidden), *attention, *_norm(hidden), *_feed_forward(hidden)]
    embeddings: list[Shape] = [(size.vocabulary, hidden), (size.positions, hidden)]
    return [*embeddings, *layer * size.layers, *_norm(hidden)]


def _linear(width_in: int, width_out: int) -> list[Shape]:
    return [(width_in, width_out), (width_out,)]


def _norm(width: int) -> list[Shape]:
    """Return a normalisation's scale and shift."""
    return [(width,), (width,)]


def _feed_forward(width: int) -> list[Shape]:
    return [*_linear(width, _EXPANSION * width), *_linear(_EXPANSION * width, width)]
