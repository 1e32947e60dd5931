"""`AllAreasConformance`: all conformance classes for a strategy of several replicas."""

from __future__ import annotations

from mpistrat.testing.strategies.config import ConfigConformance
from mpistrat.testing.strategies.cross_device_ops import CrossDeviceOpsConformance
from mpistrat.testing.strategies.examples import ExamplesConformance
from mpistrat.testing.strategies.extended import ExtendedConformance
from mpistrat.testing.strategies.gather import GatherConformance
from mpistrat.testing.strategies.input import InputConformance
from mpistrat.testing.strategies.reduce import ReduceConformance
from mpistrat.testing.strategies.run import RunConformance
from mpistrat.testing.strategies.scope import ScopeConformance
from mpistrat.testing.strategies.values import ValuesConformance
from mpistrat.testing.strategies.variables import VariablesConformance

__all__ = ["AllAreasConformance"]


class AllAreasConformance(
    ReduceConformance,
    RunConformance,
    ScopeConformance,
    GatherConformance,
    ValuesConformance,
    InputConformance,
    ConfigConformance,
    ExtendedConformance,
    VariablesConformance,
    CrossDeviceOpsConformance,
    ExamplesConformance,
):
    """Every area; give it ``strategy`` (see `StrategyConformance`) and a ``layout``.

    A strategy that is not meant to do all of this inherits its areas one by one.
    """
