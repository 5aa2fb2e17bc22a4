"""What ``verify`` says it did. Each test names the wrong change that it catches."""

import pytest
from packaging.version import Version
from patches_site import NEWEST, small_package

from sglang_ppfix.cli import main
from sglang_ppfix.patches import verify
from sglang_ppfix.patches.folder import releases
from sglang_ppfix.patches.trial import Outcome, upstream_tests


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The newest release, installed, with tests that pass."""
    found = small_package(tmp_path)
    passed = Outcome(["A.a", "A.b"], {}, "", 0.0)
    monkeypatch.setattr(verify, "installed", lambda: found)
    monkeypatch.setattr(verify, "run", lambda test, tree: passed)
    return found


def said(capsys, release, *words):
    assert main(["patches", "verify", "--release", str(release), *words]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    return line


def test_tested(package, capsys):
    """Catches "tested" without a number, and a release that is said to be not tested
    although its tests ran."""
    line = said(capsys, NEWEST)
    assert "tested: 2 CPU tests pass" in line
    assert "not tested" not in line


def test_not_tested(package, capsys):
    """Catches "ok" where no test ran: one release at most is tested by one call."""
    line = said(capsys, releases()[1])
    assert f"not tested (the CPU tests are for sglang {NEWEST})" in line
    assert " ok" not in line
    assert "not tested (not asked for)" in said(capsys, NEWEST, "--no-tests")


def test_another_release_is_installed(package, capsys):
    """Catches tests of one release that run on another one's package."""
    (info,) = package.folder.parent.glob("*.dist-info")
    info.rename(info.with_name("sglang-9.0.dist-info"))
    assert "not tested (not the release of this interpreter)" in said(capsys, NEWEST)


def test_a_local_build(package, capsys):
    """Catches a local build that is looked for in the registry, or not tested."""
    (info,) = package.folder.parent.glob("*.dist-info")
    info.rename(info.with_name(f"sglang-{NEWEST}+cu130.dist-info"))
    local = Version(f"{NEWEST}+cu130")
    assert "tested: 2 CPU tests pass" in said(capsys, local)
    assert upstream_tests(local) is not None
