"""The machine that renders decides on Python and launcher only where it is one of the site's."""

import os
import socket
import sys

import pytest

from helpers.slurm.scripts import SITES, options_for
from mpistrat.sites.machine_here import here_of, notices_of_python
from mpistrat.sites.rendering.options import Strategy


@pytest.fixture(autouse=True)
def _srun(monkeypatch, tmp_path):
    """Put a srun before others that has a type which no library of MPI takes but Open MPI."""
    (tmp_path / "srun").write_text("#!/bin/sh\nprintf 'MPI plugin types are...\\n\\tpmix\\n'\n")
    (tmp_path / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)


def here(site, **options):
    options = options_for(SITES[site], Strategy.MIRRORED, **options)
    return here_of(SITES[site], options), [
        *notices_of_python(SITES[site], options, here_of(SITES[site], options))
    ]


def test_another_machine_says_nothing_of_a_site(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "laptop")
    found, notices = here("perlmutter")
    assert (found.mpi.launcher, found.mpi.type) == ("", None)
    assert found.mpi.reason == "by its name, laptop is not known to be perlmutter"
    (notice,) = notices
    assert notice.startswith(f"the script puts {os.path.dirname(sys.executable)} of this machine")


@pytest.mark.parametrize(
    ("site", "host"), [("generic-slurm", "laptop"), ("frontier", "frontier04")]
)
def test_a_machine_of_the_site_is_asked(monkeypatch, site, host):
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    found, notices = here(site)
    assert "this Slurm offers pmix" in found.mpi.reason
    assert notices == []


def test_the_python_that_is_named(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    found, notices = here("perlmutter", python="env/bin/python3.12")
    assert (found.python_folder, found.python) == (f"{tmp_path}/env/bin", "python3.12")
    assert notices == []
    found, _ = here("perlmutter", python="python3.11")  # that of the job's own PATH
    assert (found.python_folder, found.python) == ("", "python3.11")
    found, notices = here("perlmutter", stage_environment="env")
    assert (found.python_folder, found.python) == ("", "python")
    assert notices == []
