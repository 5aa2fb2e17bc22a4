"""Every series on the fresh tree of its release."""

import pytest

pytest.importorskip("unidiff")

from conftest import RELEASES, tree_of

from sglang_ppfix.patches import PatchSetError, strict
from sglang_ppfix.patches.folder import releases, series
from sglang_ppfix.patches.verify import verify
from sglang_ppfix.patches.wheels import WheelTree, fetch


@pytest.mark.parametrize("release", releases(), ids=str)
def test_applies_and_compiles(release):
    """Catches a series that needs fuzz or an offset, or leaves a file broken."""
    tree_of(release)  # skips where the wheel cannot be had
    verdict = verify(release, test=False)
    assert verdict.patches == len(series(release))


@pytest.mark.parametrize("release", releases(), ids=str)
def test_no_other_release_takes_it(release):
    """Catches a strict applier that is none: text moves in every release."""
    diffs = [(mail.path.name, mail.diff) for mail in series(release)]
    # A post release may have the very same text.
    base = release.base_version
    others = [other for other in releases() if other.base_version != base]
    for other in others[:2]:
        tree_of(other)
        with pytest.raises(PatchSetError):
            strict.apply(diffs, WheelTree(fetch(other)).read)


def test_every_tested_release_has_a_series():
    """Catches a release that the plugin supports and the diffs do not."""
    assert set(RELEASES) == set(releases())
