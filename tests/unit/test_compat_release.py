"""Which release is installed, and which are supported."""

import pytest
from doctor_site import Site
from packaging.version import Version

from sglang_ppfix.compat import parameters
from sglang_ppfix.compat.known import Known, known
from sglang_ppfix.compat.release import is_supported


@pytest.mark.parametrize(
    ("release", "supported"),
    [
        ("0.5.10.post1", False),
        ("0.5.11", True),
        ("0.5.15.post1", True),
        ("0.5.23", True),
        ("0.5.23.post1", True),
        ("0.5.23+cu130", True),
        ("0.5.24", False),
        ("0.6.0", False),
        ("0.5.24.dev3", False),  # on the way to a release that nobody knows
        ("0.0.0.dev0", False),  # SGLang's own word for unknown
    ],
)
def test_range(release, supported):
    """Catches an open end, and local or post releases that fall out."""
    assert is_supported(Version(release)) is supported


def test_local_builds_are_their_release():
    """Catches ``0.5.23+cu130`` taken for a release that nobody looked at."""
    assert known().is_tested(Version("0.5.23+cu130"))
    assert not known().is_tested(Version("0.5.23.post1"))


def test_a_body_of_another_release_is_not_known():
    """Catches a lookup that forgets for which releases a fingerprint holds."""
    made = Known((Version("1"),), {"a.b": {"f": ("1",)}}, {})
    assert made.releases_with("a.b", "f") == ("1",)
    assert made.releases_with("a.b", "g") == ()
    assert made.releases_with("a.c", "f") == ()


def test_modules_of_a_release():
    """Catches files of all releases taken for those of one."""
    files = {"m": {"x": ("1", "2")}, "n": {"y": ("2",), "z": ("3",)}}
    made = Known((), {}, files)
    assert made.modules_of(Version("1")) == {"m": "x"}
    assert made.modules_of(Version("2+local")) == {"m": "x", "n": "y"}
    assert made.modules_of(Version("4")) == {}


def test_hooks_that_came_later():
    """Catches a hook that is left out of the release that brings its target."""
    name, first = next(iter(parameters.SINCE.items()))
    hooks = [type("H", (), {"qualname": q})() for q in (name, "Scheduler.other")]

    def names(release):
        return [h.qualname for h in parameters.in_release(hooks, release)]

    assert names(first) == names(None) == [name, "Scheduler.other"]
    assert names(Version("0.5.11")) == ["Scheduler.other"]


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("0.6.0", "0.6.0 is outside the tested range"),
        ("unknown-dev", "unknown-dev"),
        (None, "SGLang is not installed"),
    ],
)
@pytest.mark.parametrize("mode", ["1", "auto"])
def test_start_up_elsewhere(tmp_path, version, said, mode):
    """Catches a plugin that half works on a release that nobody tested, a server that
    ends without the reason, and ``auto`` that ends it or is silent."""
    site = Site(tmp_path)
    if version:
        site.add_sglang(version)
    (site.folder / "start.py").write_text(
        "from sglang_ppfix.plugin import activate\nactivate()\nprint('goes on')\n"
    )
    done = site.run_module("start", SGLANG_PPFIX=mode)
    (line,) = done.stderr.splitlines()
    assert said in line
    if version == "0.6.0":
        assert "SGLANG_PPFIX_ALLOW_UNTESTED=1" in line
    if mode == "1":
        assert (done.returncode, done.stdout) == (1, "")
    else:
        assert (done.returncode, done.stdout) == (0, "goes on\n")
        assert line.endswith("SGLang runs unchanged")
