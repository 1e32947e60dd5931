"""The log tells the rank, and speaks on the ranks that were asked for."""

import io
import logging

import pytest

from mpistrat.errors import UsageError
from mpistrat.system import log


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """A logger as it is before MPI starts, whatever ran before in this process."""
    logger = logging.getLogger("mpistrat")
    state = logger.handlers[:], logger.level, logger.propagate
    logger.handlers[:], logger.propagate = [], True
    logger.setLevel(logging.NOTSET)
    monkeypatch.setattr(log, "_once", set())
    for name in ("MPISTRAT_LOG", "MPISTRAT_LOG_RANKS"):
        monkeypatch.delenv(name, raising=False)
    yield logger
    logger.handlers[:], level, logger.propagate = state
    logger.setLevel(level)


def test_lines_tell_the_rank(capsys):
    log.configure(1, 4, "node3")
    log.get_logger("collectives").warning("text %d", 5)
    assert capsys.readouterr().err == ""


def test_rank_0_speaks_by_default(capsys):
    log.configure(0, 4, "node3")
    log.get_logger("collectives").warning("text %d", 5)
    log.get_logger("mpistrat.strategy").info("not at this level")
    expected = "[mpistrat 0/4 node3] WARNING mpistrat.collectives: text 5\n"
    assert capsys.readouterr().err == expected


def test_what_one_rank_alone_does_is_said_there(capsys):
    log.configure(1, 4, "node3")
    log.warn_alone(log.get_logger("cluster"), "compiling")
    expected = "[mpistrat 1/4 node3] WARNING mpistrat.cluster: compiling\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize(("ranks", "speaks"), [("all", True), ("0,2", True), ("1", False)])
def test_the_ranks_can_be_chosen(monkeypatch, capsys, ranks, speaks):
    monkeypatch.setenv("MPISTRAT_LOG_RANKS", ranks)
    log.configure(2, 4, "h")
    log.get_logger("mpistrat").error("x")
    assert bool(capsys.readouterr().err) == speaks


def test_the_level_can_be_chosen(monkeypatch, capsys):
    monkeypatch.setenv("MPISTRAT_LOG", "debug")
    log.configure(0, 1, "h")
    log.get_logger("a").debug("fine")
    assert "DEBUG mpistrat.a: fine" in capsys.readouterr().err


def test_an_unknown_level_is_refused(monkeypatch):
    monkeypatch.setenv("MPISTRAT_LOG", "LOUD")
    with pytest.raises(UsageError, match="MPISTRAT_LOG='LOUD'"):
        log.configure(0, 1, "h")


def test_configure_is_idempotent_and_takes_the_new_rank(fresh, capsys):
    log.configure(0, 1, "h")
    log.configure(0, 2, "h")
    assert len(fresh.handlers) == 1
    log.get_logger("a").warning("x")
    assert capsys.readouterr().err == "[mpistrat 0/2 h] WARNING mpistrat.a: x\n"


def test_an_application_keeps_its_own_handler(fresh):
    stream = io.StringIO()
    mine = logging.StreamHandler(stream)
    fresh.addHandler(mine)
    log.configure(3, 4, "h")
    assert fresh.handlers == [mine]
    assert fresh.propagate
    log.get_logger("a").warning("x")
    assert stream.getvalue() == "x\n"


def test_an_application_keeps_its_own_level(fresh, capsys):
    fresh.setLevel(logging.ERROR)
    log.configure(0, 1, "h")
    log.get_logger("a").warning("x")
    assert capsys.readouterr().err == ""


def test_the_root_logger_does_not_repeat_the_line(caplog):
    log.configure(0, 1, "h")
    log.get_logger("a").warning("x")
    assert not caplog.records


def test_names():
    assert (
        log.get_logger("mpistrat.ps.transport.mpi_tunnel").name
        == "mpistrat.ps.transport.mpi_tunnel"
    )
    assert log.get_logger("ps").name == "mpistrat.ps"
    assert log.get_logger("mpistrat").name == "mpistrat"
    assert log.get_logger("mpistratus").name == "mpistrat.mpistratus"


def test_warn_once(capsys):
    log.configure(0, 1, "h")
    logger = log.get_logger("a")
    for _ in range(3):
        log.warn_once(logger, "slow", "this is slow")
    log.warn_once(logger, "other", "told", level="ERROR")
    log.warn_once(log.get_logger("b"), "slow", "another logger")
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("] ")[1] for line in lines] == [
        "WARNING mpistrat.a: this is slow",
        "ERROR mpistrat.a: told",
        "WARNING mpistrat.b: another logger",
    ]
