"""Where site files are looked for: the user's own folder first."""

import pwd

import pytest

from mpistrat.errors import UsageError
from mpistrat.sites import lookup
from mpistrat.sites.data_folder import slurm_folder


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Return a folder of the user's own site files, which is empty."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "mpistrat" / "sites"
    folder.mkdir(parents=True)
    return folder


def copy_of(name, folder, title, as_name=None):
    text = lookup.file_of(name).read_text()
    as_name = as_name or name
    text = text.replace(f'name = "{name}"', f'name = "{as_name}"', 1)
    file = folder / f"{as_name}.toml"
    file.write_text(
        "\n".join(
            f'title = "{title}"' if line.startswith("title") else line
            for line in text.splitlines()
        )
    )
    return file


def test_a_site_that_comes_with_mpistrat(own):
    site = lookup.find("generic-slurm")
    assert site.name == "generic-slurm"
    assert lookup.file_of("generic-slurm").parent == slurm_folder() / "sites"


def test_the_users_file_goes_before(own):
    file = copy_of("perlmutter", own, "Mine")
    assert lookup.file_of("perlmutter") == file
    assert lookup.find("perlmutter").title == "Mine"
    (found,) = (known for known in lookup.known() if known.name == "perlmutter")
    assert found.is_own
    assert found.site.title == "Mine"


def test_a_site_of_the_users_own(own):
    copy_of("generic-slurm", own, "The machine in the basement", "basement")
    assert lookup.find("basement").title == "The machine in the basement"
    assert "basement" in [known.name for known in lookup.known()]


def test_a_file_by_its_path(own, tmp_path):
    file = copy_of("generic-slurm", tmp_path, "Elsewhere", "elsewhere")
    assert lookup.find(str(file)).title == "Elsewhere"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("perlmuter", "did you mean 'perlmutter'"),
        ("LUMI", "did you mean 'lumi-g'"),
        ("generic", "did you mean 'generic-slurm'"),
        ("front", "'frontier'"),
        ("juwels", "'juwels-booster'"),
    ],
)
def test_the_closest_names_are_told(own, name, meant):
    with pytest.raises(UsageError, match=f"no site is named '{name}'") as caught:
        lookup.find(name)
    text = str(caught.value)
    assert meant in text
    assert "\n" not in text


@pytest.mark.parametrize("name", ["qqq", "", "../perlmutter", "/etc/passwd"])
def test_a_name_that_is_like_no_other(own, name):
    with pytest.raises(UsageError) as caught:
        lookup.find(name)
    text = str(caught.value)
    assert f"no site is named {name!r}; " in text
    assert "alps, aurora, " in text
    assert str(own / "<name>.toml") in text


def test_a_file_with_a_mistake_hides_no_other(own):
    (own / "broken.toml").write_text("name = 3")
    sites = {known.name: known for known in lookup.known()}
    assert sites["broken"].site is None
    assert str(own / "broken.toml") in sites["broken"].problem
    assert sites["perlmutter"].site is not None
    assert list(sites) == sorted(sites)


def test_a_folder_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert lookup.user_folder() == tmp_path / ".config" / "mpistrat" / "sites"
    assert lookup.find("alps").name == "alps"


def test_a_user_without_a_home_folder(monkeypatch):
    """As in a container that runs as a number that it does not know."""
    for name in ("XDG_CONFIG_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)

    def unknown(number):
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert "alps" in [known.name for known in lookup.known()]


@pytest.mark.parametrize(
    ("host", "site"),
    [
        ("frontier00256", "frontier"),
        ("x3001c0s13b0n0", "polaris"),
        ("x3209c0s37b1n0.hsn.cm.polaris.alcf.anl.gov", "polaris"),
        ("polaris-login-01", "polaris"),
        ("x4117c4s5b0n0", "aurora"),
        ("aurora-uan-0011", "aurora"),
        ("Daint-ln002", "alps"),
        ("lrdn0001", "leonardo"),
        ("exp-7-59", "expanse"),
        ("login1.vista.tacc.utexas.edu", "vista"),
        ("nid006363", None),  # Perlmutter, LUMI and Alps name their nodes so
        ("laptop", None),
    ],
)
def test_hosts_tell_their_site(own, host, site):
    assert lookup.of_host(host) == site
