"""Wheels of every tested release, and trees that can be changed.

A wheel comes from the cache or from the registry; without either, one line says so
and the tests of that release are skipped.
"""

import sys
import zipfile
from pathlib import Path

import pytest

from sglang_ppfix.compat.known import known
from sglang_ppfix.compat.source import SourceTree

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS.parent / "tools"), str(TESTS / "unit")]

import wheels  # noqa: E402

RELEASES = known().releases
NEWEST = RELEASES[-1]


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "releases: runs other SGLang releases (minutes each, overlays)"
    )


def tree_of(release):
    """Source of a release, or skip."""
    try:
        return wheels.tree(release)
    except wheels.Offline as error:
        pytest.skip(str(error))


@pytest.fixture(params=RELEASES, ids=str)
def release(request):
    """Every tested release."""
    return request.param


@pytest.fixture
def tree(release):
    """Source of every tested release."""
    return tree_of(release)


class Recording(SourceTree):
    """Notes which modules are read."""

    def __init__(self, folder):
        super().__init__(folder)
        self.read = {}

    def text(self, module):
        text = super().text(module)
        if text is not None:
            self.read[module] = text
        return text


@pytest.fixture(scope="session")
def sources():
    """The files of the newest release that a verdict needs: module to text."""
    from sglang_ppfix.compat.drift import search
    from sglang_ppfix.doctor.targets import hooks_of

    try:
        wheel = wheels.fetch(NEWEST)
    except wheels.Offline as error:
        pytest.skip(str(error))
    recording = Recording(zipfile.Path(wheel, "sglang/"))
    assert search(recording, hooks_of(NEWEST), NEWEST) == []
    return dict(recording.read)
