"""The same change as diffs: kept per release, checked, exported, applied, reverted."""


class PatchSetError(Exception):
    """A diff does not fit, or the tree is not what it should be; one line."""
