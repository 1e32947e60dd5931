"""Growth by ranks is found with its exponents, and is not seen in noise."""

from fractions import Fraction

import numpy as np
import pytest

from mpistrat.bench.cost_model.fitting.normal_form import fit_normal_form

RANKS = (1, 2, 4, 8, 16, 32)


@pytest.mark.parametrize(
    ("power", "log"), [(Fraction(1), 0), (Fraction(1, 2), 0), (Fraction(0), 1), (Fraction(2), 0)]
)
def test_exponents_are_found(power: Fraction, log: int) -> None:
    form = fit_normal_form({p: 0.5 + 0.1 * p ** float(power) * np.log2(p) ** log for p in RANKS})
    assert (form.power, form.log) == (power, log)
    assert form.error == pytest.approx(0, abs=1e-6)
    expected = 0.5 + 0.1 * 100_000 ** float(power) * np.log2(100_000) ** log
    assert form.value(100_000) == pytest.approx(expected, rel=1e-3)


def test_noise_is_a_constant() -> None:
    random = np.random.default_rng(4)
    form = fit_normal_form({p: 0.2 * (1 + 0.1 * random.standard_normal()) for p in RANKS})
    assert not form.grows
    assert form.value(100_000) == pytest.approx(0.2, rel=0.15)


def test_three_numbers_of_ranks_say_nothing_of_growth() -> None:
    form = fit_normal_form({1: 1.0, 2: 2.0, 4: 4.0})
    assert (form.grows, form.error, str(form), form.most) == (False, None, "2", 4)


def test_a_form_is_written_as_a_formula() -> None:
    assert str(fit_normal_form({p: 0.5 + 0.25 * p for p in RANKS})) == "0.5 + 0.25 p"
    assert str(fit_normal_form({p: 1 + 2 * np.log2(p) for p in RANKS})) == "1 + 2 log2(p)"
