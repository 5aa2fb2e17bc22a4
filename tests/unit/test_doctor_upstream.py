"""The doctor on an SGLang that holds the change itself, as a merge or by our diffs."""

import sys

import pytest
from doctor_site import CHANGE, Site, only

REVERT = "sglang-ppfix patches revert"


@pytest.fixture
def site(tmp_path):
    made = Site(tmp_path)
    made.add_sglang("0.5.23")
    made.add_torch("2.14.1")
    return made


@pytest.mark.parametrize("flag", ["", "0"])
def test_all_of_it_and_the_plugin_off(site, flag):
    """Catches ``fail`` and contradicting commands, one of which would put stock files
    over the diffs, where all is as its owner wants it."""
    site.change_sglang(*CHANGE, by_patches=True)
    checks = site.examine(SGLANG_PPFIX=flag, SGLANG_PLUGINS="other")
    told = [check for group in checks.values() for check in group]
    assert [check for check in told if check["state"] != "ok"] == []
    assert "plugin is not needed" in only(checks, "upstream")["text"]
    assert "targets" not in checks


@pytest.mark.parametrize("flag", ["1", "observe"])
@pytest.mark.parametrize("by_patches", [True, False])
def test_all_of_it_and_the_plugin_on(site, flag, by_patches):
    """Catches more than one line about it, and ``patches revert`` where that would
    find nothing to revert."""
    site.change_sglang(*CHANGE, by_patches=by_patches)
    checks = site.examine(SGLANG_PPFIX=flag)
    told = [check for group in checks.values() for check in group]
    (bad,) = (check for check in told if check["state"] != "ok")
    assert (bad["name"], bad["state"]) == ("upstream", "fail")
    assert bad["fix"].startswith(REVERT if by_patches else "unset SGLANG_PPFIX")


def test_a_part_of_it(site):
    """Catches a half patched SGLang that is taken for a whole one."""
    site.change_sglang("scheduler")
    checks = site.examine(SGLANG_PPFIX="1")
    found = only(checks, "upstream")
    assert (found["state"], found["fix"]) == ("fail", "unset SGLANG_PPFIX")
    assert "derive-cap" in found["text"]
    assert "fail" in [check["state"] for check in checks["targets"]]


def test_a_part_of_it_and_the_plugin_off(site):
    """Catches ``unset`` of what is not set."""
    site.change_sglang("scheduler")
    found = only(site.examine(), "upstream")
    assert found["state"] == "warn"
    assert found["fix"].endswith("--no-deps sglang==0.5.23 --python " + sys.executable)


def test_diffs_are_never_reinstalled_over(site):
    """Catches a forced reinstallation where ``patches revert`` knows the originals."""
    site.change_sglang("scheduler", by_patches=True)
    checks = site.examine(SGLANG_PPFIX="1")
    drifted = [c for c in checks["targets"] if c["state"] == "fail"]
    assert drifted
    assert {c["fix"] for c in [*drifted, *checks["upstream"]]} == {REVERT}
