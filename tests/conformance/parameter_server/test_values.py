"""Results of functions: as arguments of others, and such as cannot travel."""

import threading
import time

import numpy as np
import pytest

from helpers.coordinator.coordination import JOBS, Cast, on_chief
from mpistrat import Variable
from mpistrat.coordinator import ClusterCoordinator
from mpistrat.errors import ArgumentTypeError, CoordinatorError
from mpistrat.ps.messages import Add, Drop
from mpistrat.strategy.parameter_server.strategy import ParameterServerStrategy

on_jobs = pytest.mark.parametrize("layout", JOBS, ids=str)


@on_jobs
@pytest.mark.parametrize("options", [{}, {"max_staleness": 1}, {"synchronous": True}], ids=str)
def test_a_result_is_an_argument_of_another_function_before_it_is_there(layout, options):
    @on_chief(layout, **options)
    def _(strategy, coordinator):
        def first(number):
            time.sleep(0.003 * (number % 3))
            return np.full(3, float(number))

        def second(values, scale):
            return sum(values["all"]) * scale

        sums = []
        for number in range(20):
            parts = [coordinator.schedule(first, args=(number + i,)) for i in range(2)]
            twice = coordinator.schedule(second, args=({"all": parts},), kwargs={"scale": 2.0})
            sums.append(coordinator.schedule(second, args=({"all": [twice]}, 1.0)))
        for number, found in enumerate(coordinator.fetch(sums)):
            assert found.tolist() == [2.0 * (2 * number + 1)] * 3
        again = coordinator.schedule(second, args=({"all": sums[:3]}, 1.0))  # fetched before
        assert again.fetch().tolist() == [18.0] * 3


@on_jobs
def test_a_result_that_failed_is_no_argument(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        bad = coordinator.schedule(divide, args=(0,))
        with pytest.raises(ZeroDivisionError):
            bad.fetch()
        with pytest.raises(ZeroDivisionError):
            coordinator.join()
        with pytest.raises(ZeroDivisionError):
            coordinator.schedule(abs, args=(bad,))
        assert coordinator.schedule(abs, args=(coordinator.schedule(divide, args=(2,)),)).fetch()


def divide(number):
    return 1 / number


def test_a_result_travels_as_an_argument_only():
    with (
        ParameterServerStrategy(Cast(1, 1, 1).resolver()) as one,
        ParameterServerStrategy(Cast(1, 1, 1).resolver()) as other,
    ):
        value = ClusterCoordinator(one).schedule(divide, args=(1,))
        with pytest.raises(ArgumentTypeError, match="of another coordinator"):
            ClusterCoordinator(other).schedule(abs, args=(value,))
        with pytest.raises(ArgumentTypeError, match="as an argument"):
            ClusterCoordinator(one).schedule(lambda: value)


class Stubborn:
    """Does not travel."""

    def __reduce__(self):
        raise RuntimeError("stays here")


@on_jobs
@pytest.mark.parametrize("make", [threading.Lock, Stubborn])
def test_a_result_that_cannot_travel_names_function_and_worker(layout, make):
    @on_chief(layout)
    def _(strategy, coordinator):
        def returns_what_stays():
            return make()

        with pytest.raises(ArgumentTypeError) as caught:
            coordinator.schedule(returns_what_stays).fetch()
        for words in ("returns_what_stays", "worker ", "return plain data"):
            assert words in str(caught.value)
        with pytest.raises(ArgumentTypeError):
            coordinator.join()


def test_a_function_that_exits_is_an_error_where_workers_are_threads():
    @on_chief(Cast(1, 2, 1))
    def _(strategy, coordinator):
        def leave():
            raise SystemExit("this worker leaves")

        with pytest.raises(
            CoordinatorError, match=r"leave called sys.exit\('this worker leaves'\) on worker"
        ):
            coordinator.schedule(leave).fetch()
        with pytest.raises(CoordinatorError):
            coordinator.join()
        assert coordinator.schedule(divide, args=(1,)).fetch() == 1.0


@on_jobs
def test_what_went_wrong_on_each_ps_is_told(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        client = strategy.extended.client
        with strategy.scope():
            gone = [Variable(np.zeros(3)) for _ in range(2)]  # one on each ps
        keys = {one.spec.ps: one.spec.key for one in gone}
        for ps, key in keys.items():
            client.tell(ps, Drop(key))
            client.tell(ps, Add(key, np.ones(3)))
        with pytest.raises(ValueError, match="ps 0") as caught:
            client.flush()
        assert "ps 1" in str(caught.value.__cause__)
