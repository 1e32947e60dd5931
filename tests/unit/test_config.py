"""Environment variables: defaults, values, and refusals that name the variable."""

import re
from pathlib import Path

import pytest

from mpistrat import config
from mpistrat.errors import UsageError

NUMBERS = [
    ("MPISTRAT_TIMEOUT", config.timeout_s, 300.0),
    ("MPISTRAT_GRACE", config.grace_s, 5.0),
    ("MPISTRAT_RECORDS", config.records, 256),
    ("MPISTRAT_FUSION_BYTES", config.fusion_bytes, 33554432),
    ("MPISTRAT_COMPILE_TIMEOUT", config.compile_timeout_s, 300.0),
    ("MPISTRAT_SIGNAL_LEAD", config.signal_lead_s, 300.0),
]

READ = (config.backend, config.log_level, config.log_ranks, config.allows_singleton)


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for name in re.findall(r"^(MPISTRAT_\w+)", config.__doc__, re.MULTILINE):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(("name", "read", "default"), NUMBERS)
def test_numbers(monkeypatch, name, read, default):
    assert read() == default
    monkeypatch.setenv(name, "")
    assert read() == default
    monkeypatch.setenv(name, "12")
    assert read() == 12
    assert type(read()) is type(default)


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "1s"])
@pytest.mark.parametrize(("name", "read", "default"), NUMBERS)
def test_bad_numbers_name_the_variable(monkeypatch, name, read, default, text):
    monkeypatch.setenv(name, text)
    with pytest.raises(UsageError, match=f"{name}='{text}': expected a number above 0"):
        read()


def test_infinity_is_no_setting(monkeypatch):
    monkeypatch.setenv("MPISTRAT_TIMEOUT", "inf")
    with pytest.raises(UsageError, match="MPISTRAT_TIMEOUT='inf': expected a finite number"):
        config.timeout_s()


def test_a_bucket_has_a_byte(monkeypatch):
    monkeypatch.setenv("MPISTRAT_FUSION_BYTES", "0.5")
    with pytest.raises(UsageError, match=r"MPISTRAT_FUSION_BYTES='0\.5': expected at least 1"):
        config.fusion_bytes()


@pytest.mark.parametrize("text", ["0.5", "10000001", "999999999999"])
def test_numbers_of_records_have_limits(monkeypatch, text):
    monkeypatch.setenv("MPISTRAT_RECORDS", text)
    with pytest.raises(UsageError, match=f"MPISTRAT_RECORDS='{text}': expected a number from 1"):
        config.check_all()


def test_a_default_stands_for_a_wrong_value(monkeypatch):
    monkeypatch.setenv("MPISTRAT_GRACE", "2")
    assert config.valid_or(config.grace_s, 5.0) == 2.0
    monkeypatch.setenv("MPISTRAT_GRACE", "-2")
    assert config.valid_or(config.grace_s, 5.0) == 5.0


def test_empty_values_are_unset_ones(monkeypatch):
    names = re.findall(r"^(MPISTRAT_\w+)", config.__doc__, re.MULTILINE)
    before = [read() for read in READ]
    for name in names:
        monkeypatch.setenv(name, "")
    config.check_all(2)
    assert [read() for read in READ] == before
    assert config.agreed_settings() == {}


def test_names(monkeypatch):
    assert (config.backend(), config.log_level()) == ("auto", "WARNING")
    monkeypatch.setenv("MPISTRAT_BACKEND", "mpi")
    monkeypatch.setenv("MPISTRAT_LOG", "debug")
    assert (config.backend(), config.log_level()) == ("mpi", "DEBUG")


@pytest.mark.parametrize(
    ("text", "ranks"), [(None, {0}), ("all", None), (" ALL", None), ("3", {3}), ("0, 2", {0, 2})]
)
def test_log_ranks(monkeypatch, text, ranks):
    if text is not None:
        monkeypatch.setenv("MPISTRAT_LOG_RANKS", text)
    assert config.log_ranks() == ranks


@pytest.mark.parametrize("text", ["first", "-1", "0,", "0,-1"])
def test_bad_log_ranks(monkeypatch, text):
    monkeypatch.setenv("MPISTRAT_LOG_RANKS", text)
    with pytest.raises(UsageError, match=f"MPISTRAT_LOG_RANKS='{text}': expected 'all' or ranks"):
        config.check_all()


def test_one_of_the_job_has_to_log(monkeypatch):
    monkeypatch.setenv("MPISTRAT_LOG_RANKS", "2,9")
    config.check_all(3)
    config.check_all()  # alone, where nothing is logged by rank
    with pytest.raises(UsageError, match="'2,9': none of these ranks is in a job of 2; expected"):
        config.check_all(2)


def test_a_wrong_level_of_the_log_is_quoted_as_given(monkeypatch):
    monkeypatch.setenv("MPISTRAT_LOG", "loud")
    with pytest.raises(UsageError, match=r"MPISTRAT_LOG='loud': .*CRITICAL; unset it or fix it"):
        config.check_all()


def test_singletons_are_allowed_by_1_alone(monkeypatch):
    assert not config.allows_singleton()
    for text, allowed in (("1", True), ("0", False), ("", False), ("yes", False)):
        monkeypatch.setenv("MPISTRAT_ALLOW_SINGLETON", text)
        assert config.allows_singleton() is allowed


def test_checks_are_turned_off_by_0_alone(monkeypatch):
    assert config.checks()
    assert config.timeline() == ""
    for text, on in (("0", False), ("1", True), ("", True)):
        monkeypatch.setenv("MPISTRAT_CHECKS", text)
        assert config.checks() is on


@pytest.mark.parametrize("name", ["MPISTRAT_CHECKS", "MPISTRAT_TF_NATIVE"])
@pytest.mark.parametrize("text", ["false", "off", "banana", "2"])
def test_switches_are_0_or_1(monkeypatch, name, text):
    monkeypatch.setenv(name, text)
    with pytest.raises(UsageError, match=f"{name}='{text}': expected 0 or 1"):
        config.check_all()


# Any text is one of these, or what is wrong with it is told where it is used.
FREE = {"BACKEND", "TIMELINE", "TUNING", "CACHE", "OUTCOME_FILE"}


@pytest.mark.parametrize(
    "name",
    sorted(
        line.split()[0]
        for line in config.__doc__.splitlines()
        if line.startswith("MPISTRAT_")
        and line.split()[0].removeprefix("MPISTRAT_") not in {*FREE, "RANK_PROCESS"}
    ),
)
def test_all_settings_are_checked_at_once(monkeypatch, name):
    config.check_all()
    monkeypatch.setenv(name, "x")
    with pytest.raises(UsageError, match=f"{name}='?x"):
        config.check_all()


def test_misspelt_settings_are_found(monkeypatch):
    others = ["TESTS_LONG", "TESTS_ALL", "TESTS_SLOWER", "TEST_JOB", "BUILD_KERNELS", "OF_MY_OWN"]
    for name in others:
        monkeypatch.setenv(f"MPISTRAT_{name}", "1")
    assert config.misspelt() == {}
    for name in ("TIMEOUTS", "FUSION_BYTE", "CHECK"):
        monkeypatch.setenv(f"MPISTRAT_{name}", "1")
    assert config.misspelt() == {
        "MPISTRAT_CHECK": "MPISTRAT_CHECKS",
        "MPISTRAT_FUSION_BYTE": "MPISTRAT_FUSION_BYTES",
        "MPISTRAT_TIMEOUTS": "MPISTRAT_TIMEOUT",
    }


def test_the_native_operation_is_turned_off_by_0_alone(monkeypatch):
    assert config.tf_native()
    for text, on in (("0", False), ("1", True), ("", True)):
        monkeypatch.setenv("MPISTRAT_TF_NATIVE", text)
        assert config.tf_native() is on


def test_the_cache_folder_is_the_first_that_is_set(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert config.cache_folder() == tmp_path / ".cache" / "mpistrat"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert config.cache_folder() == tmp_path / "xdg" / "mpistrat"
    monkeypatch.setenv("MPISTRAT_CACHE", str(tmp_path / "own"))
    assert config.cache_folder() == tmp_path / "own"
    assert config.tuning_file() == tmp_path / "own" / "tuning.json"


def test_agreed_settings_are_those_that_are_set(monkeypatch):
    assert config.agreed_settings() == {}
    monkeypatch.setenv("MPISTRAT_BACKEND", "mpi")
    monkeypatch.setenv("MPISTRAT_TIMEOUT", "5")  # may differ between ranks
    assert config.agreed_settings() == {"MPISTRAT_BACKEND": "mpi"}


def test_every_variable_of_the_package_is_in_the_table():
    package = Path(config.__file__).parent
    files = [f for f in package.rglob("*.py") if "testing" not in f.parts]
    used = {
        name
        for file in files
        for name in re.findall(r'"(MPISTRAT_[A-Z_]+)"', file.read_text(encoding="utf-8"))
    }
    table = set(re.findall(r"^(MPISTRAT_\w+)", config.__doc__, re.MULTILINE))
    assert used <= table
