"""Non-negative least squares in relative error, that a few bad measurements do not move."""

from __future__ import annotations

import numpy as np

from mpistrat.types import Array

__all__ = ["non_negative", "relative_fit"]

_ROUNDS = 12
_OUTLIER = 0.15  # relative error from which a point counts less, the more the farther off


def relative_fit(counts: Array, times: Array) -> Array:
    """Return the parameters >= 0 for which `counts @ parameters` is nearest to `times`.

    Parameters
    ----------
    counts
        float64, a row for each measurement and a column for each parameter.
    times
        float64, above 0.

    Notes
    -----
    What is small in sum is the relative error, so that times of a microsecond and of a second
    count alike; squared up to 15 %, and by its amount beyond (Huber, by reweighting): a time
    that other work on the machine has multiplied does not move the rest.
    """
    rows = counts / times[:, None]
    target = np.ones(len(times))
    weights = np.ones(len(times))
    parameters = np.zeros(counts.shape[1])
    for _ in range(_ROUNDS):
        roots = np.sqrt(weights)
        parameters = non_negative(rows * roots[:, None], target * roots)
        errors = np.abs(rows @ parameters - target)
        updated = np.minimum(1, _OUTLIER / np.maximum(errors, 1e-12))
        if np.allclose(updated, weights, rtol=1e-3):
            break
        weights = updated
    return parameters


def non_negative(matrix: Array, target: Array) -> Array:
    """Return x >= 0 for which `matrix @ x` is nearest to `target` (Lawson and Hanson's method).

    Columns of zeros get 0.
    """
    scale = np.linalg.norm(matrix, axis=0)
    used = scale > 0
    scaled = matrix / np.where(used, scale, 1)
    # A few parameters: their normal equations are as good, and much smaller.
    gram, right = scaled.T @ scaled, scaled.T @ target
    solution, is_free = np.zeros(len(right)), np.zeros(len(right), bool)
    least = 1e-10 * float(np.linalg.norm(target))
    for _ in range(3 * len(right)):
        gradient = np.where(used & ~is_free, right - gram @ solution, -np.inf)
        best = int(np.argmax(gradient))
        if gradient[best] <= least:
            break
        is_free[best] = True
        solution = _inside(gram, right, solution, is_free)
    result: Array = solution / np.where(used, scale, 1)
    return result


def _inside(gram: Array, right: Array, start: Array, is_free: Array) -> Array:
    """Go from `start` to the best solution of the free columns; those that reach 0 stay there."""
    solution = start
    while is_free.any():
        wanted = np.zeros(len(start))
        free = np.flatnonzero(is_free)
        wanted[free] = np.linalg.lstsq(gram[np.ix_(free, free)], right[free], rcond=None)[0]
        below = is_free & (wanted <= 0)
        if not below.any():
            return wanted
        steps = solution[below] / np.maximum(solution[below] - wanted[below], 1e-300)
        solution = solution + float(np.min(steps)) * (wanted - solution)
        is_free &= solution > 1e-14
        solution = np.where(is_free, solution, 0)
    return np.zeros(len(start))
