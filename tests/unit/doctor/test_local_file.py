"""A corrected copy of a site's file is one that the schema accepts, with its source and date."""

import datetime as dt

import pytest

from mpistrat.doctor.site.local_file import corrected, write_local
from mpistrat.errors import UsageError
from mpistrat.sites import lookup

TODAY = dt.date(2026, 11, 25)
TITLE = "mpistrat doctor 0.1.0 on n0, Slurm 22.05.8"
CORRECTIONS = {
    "node.cores": 2,
    "node.threads_per_core": 1,
    "signal.requeue": True,
    "binding.gpu_of_local_rank": (0,),
}


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "mpistrat" / "sites"


def test_nothing_is_written_for_a_user_without_a_home(tmp_path, monkeypatch):
    monkeypatch.setattr(lookup, "user_folder", lambda: tmp_path / "~" / "mpistrat" / "sites")
    with pytest.raises(UsageError, match="no home folder; name one by XDG_CONFIG_HOME"):
        write_local(lookup.file_of("vista"), CORRECTIONS, TITLE, TODAY)
    assert list(tmp_path.iterdir()) == []


def test_the_copy_goes_before_the_shipped_file(home):
    shipped = lookup.file_of("vista")
    before = shipped.read_text()
    file = write_local(shipped, CORRECTIONS, TITLE, TODAY)
    assert file == home / "vista.toml"
    assert shipped.read_text() == before
    site = lookup.find("vista")
    assert site.node.cores.value == 2
    assert site.node.cores.reason == "the file said 72"
    assert site.binding.gpu_of_local_rank.value == (0,)
    source = site.source_of(site.node.cores)
    assert (source.title, source.date, source.by) == (TITLE, TODAY, "measured")
    assert site.forbids("--mem=4G")  # the rest stays


def test_a_second_correction_replaces_the_first(home):
    first = write_local(lookup.file_of("vista"), CORRECTIONS, TITLE, TODAY)
    write_local(lookup.file_of("vista"), {"node.cores": 4}, "another", TODAY)
    assert lookup.file_of("vista") == first
    site = lookup.find("vista")
    assert (site.node.cores.value, site.node.cores.reason) == (4, "the file said 2")


def test_comments_stay_and_sources_that_are_unused_go():
    text = """\
# A comment.
[sources]
old = { title = "a", date = 2020-01-01, by = "centre" }
[node]
cores = { value = 1, source = "old" }  # counted
[storage]
node_local = { value = "/tmp", source = "old", kind = "disk" }
"""
    new = corrected(text, {"node.cores": 2, "storage.node_local.kind": "ram"}, TITLE, TODAY)
    assert new.startswith("# A comment.")
    assert "old =" not in new
    assert 'kind = "ram"' in new
    assert 'cores = { value = 2, source = "doctor", reason = "the file said 1" }' in new


def test_a_value_that_the_schema_refuses_is_not_written(home):
    with pytest.raises(UsageError, match=r"node\.cores"):
        write_local(lookup.file_of("vista"), {"node.cores": "many"}, TITLE, TODAY)
    assert not home.exists()
