"""Is SGLang fixed already? Each test names the wrong change that it catches."""

import pytest
from patches_site import NEWEST, contents, small_package, upgrade

from sglang_ppfix.compat.source import SourceTree
from sglang_ppfix.compat.upstream import PROBES, fixed_upstream
from sglang_ppfix.patches import installed
from sglang_ppfix.patches.folder import releases


def found(package):
    """Names of the changes that are found, by the lines that say so."""
    lines = list(fixed_upstream(SourceTree(package.folder)))
    return [p.change for p in PROBES if any(f" {p.change} " in line for line in lines)]


@pytest.mark.parametrize("release", [NEWEST, releases()[-1]], ids=str)
def test_patched(tmp_path, release):
    """Catches a use that the scheduler of some release has by another name: the plugin
    would act on top of the diffs."""
    package = small_package(tmp_path, release)
    assert found(package) == []
    installed.apply(package, release)
    assert found(package) == [probe.change for probe in PROBES]


@pytest.mark.parametrize("release", [NEWEST, releases()[1]], ids=str)
def test_left_over_after_an_upgrade(tmp_path, release):
    """Catches a file that counts although nothing imports it: the doctor fails and the
    plugin refuses on a stock SGLang."""
    package = small_package(tmp_path, releases()[1])
    installed.apply(package, releases()[1])
    upgrade(package, release)
    assert "sglang/srt/managers/pp_slots.py" in contents(package)
    assert found(package) == []
