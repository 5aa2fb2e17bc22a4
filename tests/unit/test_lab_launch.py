"""How a lab server is called."""

import os

import pytest
from packaging.version import Version

from sglang_ppfix.lab import launch
from sglang_ppfix.lab.config import LabConfig
from sglang_ppfix.lab.profile_file import stage_profile


@pytest.mark.parametrize(
    ("release", "entries"), [("0.5.17", 1), ("0.5.19", 4), ("0.5.23", 4)]
)
def test_cores_are_given_as_the_release_wants_them(
    tmp_path, monkeypatch, release, entries
):
    """Catches a server that ends with "must be aligned with TP size", seen with 0.5.17,
    and one with too few entries from 0.5.19 on."""
    monkeypatch.setattr(launch, "installed_release", lambda: Version(release))
    config = LabConfig(stage_profile("20", 4))
    values = launch.environment(config, tmp_path / "device.json")
    bind = values["SGLANG_CPU_OMP_THREADS_BIND"].split("|")
    assert len(bind) == entries
    used = {int(core) for entry in bind for core in entry.split(",")}
    assert used <= os.sched_getaffinity(0)
