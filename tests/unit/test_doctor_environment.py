"""The doctor in environments that are not as they should be.

Each test names, in its docstring, the wrong change that it catches.
"""

import sys
from pathlib import Path

import pytest
from doctor_site import Site, only

import sglang_ppfix
from sglang_ppfix.doctor import mend


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def test_without_sglang(site):
    """Catches a traceback, or a verdict other than fail, where SGLang is missing."""
    checks = site.examine(SGLANG_PPFIX="1")
    found = only(checks, "sglang")
    assert (found["state"], found["text"]) == ("fail", "SGLang is not installed")
    assert "pip install" in found["fix"]
    assert "sglang" in found["fix"]
    assert "targets" not in checks
    assert "release" not in checks


def test_release_outside_the_range(site):
    """Catches a range that is not read, or that has an open end."""
    site.add_sglang("0.6.0")
    found = only(site.examine(SGLANG_PPFIX="1"), "release")
    assert found["state"] == "fail"
    assert "0.6.0 is outside the tested range" in found["text"]
    assert "SGLANG_PPFIX_ALLOW_UNTESTED=1" in found["fix"]


def test_release_without_plugins(site):
    """Catches an override offered where SGLang never asks for the plugin."""
    site.add_sglang("0.5.10.post1")
    found = only(
        site.examine(SGLANG_PPFIX="1", SGLANG_PPFIX_ALLOW_UNTESTED="1"), "release"
    )
    assert found["state"] == "fail"
    assert "0.5.10.post1 loads no plugins" in found["text"]
    assert "ALLOW_UNTESTED" not in found["fix"]


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (None, "SGLang is not installed"),
        ("0.5.10.post1", "0.5.10.post1 loads no plugins"),
        ("0.5.23", "loads the plugin itself"),
    ],
)
def test_serve_refuses(site, version, said):
    """Catches a launcher that starts something, or ends without a word."""
    if version:
        site.add_sglang(version)
    done = site.run_module("sglang_ppfix.serve")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert said in line


def test_an_untested_release_may_be_tried(site):
    """Catches an override that the doctor does not know of."""
    site.add_sglang("0.6.0")
    checks = site.examine(SGLANG_PPFIX="1", SGLANG_PPFIX_ALLOW_UNTESTED="1")
    assert only(checks, "release")["state"] == "warn"


def test_two_installations_mixed(site):
    """Catches a check that believes the metadata alone."""
    package = site.add_sglang("0.5.23")
    (package / "_version.py").write_text("version = '0.5.21'\n")
    found = only(site.examine(), "sglang")
    assert found["state"] == "fail"
    assert "0.5.23" in found["text"]
    assert "0.5.21" in found["text"]


def test_a_version_that_is_none(site):
    """Catches a traceback on metadata that PEP 440 does not know."""
    site.add_sglang("unknown-dev")
    found = only(site.examine(), "sglang")
    assert found["state"] == "fail"
    assert "unknown-dev" in found["text"]


def test_package_without_metadata(site):
    """Catches ``is not installed`` for a source folder on PYTHONPATH."""
    (site.folder / "sglang").mkdir()
    (site.folder / "sglang" / "__init__.py").write_text("")
    found = only(site.examine(), "sglang")
    assert found["state"] == "fail"
    assert "no metadata" in found["text"]


def test_a_dependency_is_missing(site):
    """Catches a doctor that needs what it is to check."""
    (link,) = site.folder.glob("prometheus_client-*.dist-info")
    link.unlink()
    found = only(site.examine(), "plugin")
    assert found["state"] == "fail"
    assert "prometheus-client" in found["text"]
    assert "pip install 'prometheus-client>=" in found["fix"]


@pytest.mark.parametrize(
    ("name", "skipped"),
    [("wrapt", "targets, other_plugins"), ("packaging", "sglang, torch, ")],
)
def test_what_the_doctor_needs_is_missing(site, name, skipped):
    """Catches a traceback, and a check that is left out without a word."""
    site.add_sglang("0.5.23")
    site.remove(name)
    checks = site.examine(SGLANG_PPFIX="1")
    found = only(checks, "plugin")
    assert found["state"] == "fail"
    assert name in found["text"]
    assert name in found["fix"]
    left_out = only(checks, "skipped")
    assert left_out["state"] == "fail"
    assert f"not checked: {skipped}" in left_out["text"]
    assert name in left_out["fix"]
    assert ("entry_point" in checks) == (name == "wrapt")


def test_a_dependency_that_cannot_be_imported(site):
    """Catches a look at metadata alone, and an error that is not an ImportError."""
    site.add_sglang("0.5.23")
    (site.folder / "wrapt").unlink()
    (site.folder / "wrapt.py").write_text("")
    found = only(site.examine(SGLANG_PPFIX="1"), "skipped")
    assert "AttributeError: module 'wrapt'" in found["text"]


def test_without_our_metadata(site):
    """Catches a traceback on a checkout that is only on PYTHONPATH."""
    site.add_sglang("0.5.23")
    site.remove("sglang_ppfix")
    (site.folder / "sglang_ppfix").symlink_to(Path(sglang_ppfix.__file__).parent)
    checks = site.examine(SGLANG_PPFIX="1")
    for name in ("plugin", "entry_point", "release"):
        assert only(checks, name)["state"] == "fail"
    assert "supported range is not known" in only(checks, "release")["text"]
    checkout = Path(sglang_ppfix.__file__).parents[1]
    assert str(checkout) in only(checks, "release")["fix"]


def test_every_problem_has_a_fix(site):
    """Catches a check that says what is wrong and not what to do."""
    site.add_sglang("0.6.0")
    (site.cwd / "sglang.py").write_text("")
    checks = site.examine(SGLANG_PPFIX="1", SGLANG_PLUGINS="other")
    for check in (check for group in checks.values() for check in group):
        assert (check["state"] == "ok") == (check["fix"] is None), check


@pytest.mark.parametrize("has_pip", [True, False])
def test_fixes_use_what_is_there(monkeypatch, has_pip):
    """Catches ``python -m pip`` in an environment of uv, which has no pip."""
    monkeypatch.setattr(mend, "find_spec", lambda name: object() if has_pip else None)
    words = mend.pip("install", "wrapt>=1.16")
    if has_pip:
        assert words == f"{sys.executable} -m pip install 'wrapt>=1.16'"
    else:
        assert words == f"uv pip install 'wrapt>=1.16' --python {sys.executable}"


def test_text_has_the_same_verdict(site):
    """Catches a text that differs from the JSON, and a fix that is not shown."""
    done = site.run()
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[-1] == "state: fail"
    assert any(line.startswith("fail  sglang ") for line in lines)
    assert any(line.strip().startswith("fix: ") for line in lines)


def test_unknown_option_is_a_usage_error(site):
    """Catches an exit status that programs cannot tell from a failed check."""
    assert site.run("--no-such-option").returncode == 2
