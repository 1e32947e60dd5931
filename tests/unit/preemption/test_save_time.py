"""The time of the next save is predicted from those before, also after a restart."""

import os

import pytest

from mpistrat.preemption.save_time import SaveTime


def test_a_first_save_is_taken_with_half_as_much_again():
    times = SaveTime(None)
    assert times.expected_s is None
    times.add(4.0)
    assert times.expected_s == 6.0


def test_equal_saves_are_trusted_more_and_more():
    times, found = SaveTime(None), []
    for _ in range(20):
        times.add(4.0)
        found.append(times.expected_s)
    assert found == sorted(found, reverse=True)
    assert found[-1] == pytest.approx(4.0, abs=0.02)


def test_a_slow_one_raises_it_at_once():
    times = SaveTime(None)
    for duration_s in (4.0, 4.0, 12.0):
        times.add(duration_s)
    assert times.expected_s > 8
    times.add(4.0)
    assert times.expected_s > 8  # what varies may be slow again


def test_it_is_kept_over_restarts(tmp_path):
    before = SaveTime(tmp_path)
    before.add(4.0)
    assert os.listdir(tmp_path) == ["save_time.json"]
    assert SaveTime(tmp_path).expected_s == 6.0


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"mean_s": null, "deviation_s": 1}', "\xff"])
def test_a_file_that_is_not_ours_says_nothing(tmp_path, text):
    (tmp_path / "save_time.json").write_text(text, encoding="latin-1")
    times = SaveTime(tmp_path)
    assert times.expected_s is None
    times.add(4.0)
    assert SaveTime(tmp_path).expected_s == 6.0


def test_a_folder_that_is_gone_is_no_error(tmp_path):
    times = SaveTime(tmp_path / "gone")
    times.add(4.0)
    assert times.expected_s == 6.0
