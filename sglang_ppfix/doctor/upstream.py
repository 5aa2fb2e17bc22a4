"""Does SGLang hold the change already, merged or applied as a diff?"""

from collections.abc import Iterator

from sglang_ppfix.patches.package import MANIFEST, OURS
from sglang_ppfix.plugin import FLAG

from .mend import reinstall
from .report import Check, State
from .surroundings import Surroundings


def upstream(surroundings: Surroundings) -> Iterator[Check]:
    """One line where all of the change is there, else one for each part of it.

    SGLang with all of it is sound, and so is its owner's wish: what the hooks expect
    is then not looked for, and a plugin that is on is the only thing wrong.
    """
    revert, unset = _revert(surroundings), f"unset {FLAG}"
    if surroundings.is_patched:
        text = "SGLang holds all of the change itself: the plugin is not needed"
        if surroundings.is_off:
            yield Check("upstream", State.OK, f"{text}, and off")
            return
        # To leave the diffs and switch the plugin off is as good.
        fix = f"{revert}    # or: {unset}" if revert else unset
        yield Check("upstream", State.FAIL, f"{text}, but on", fix)
        return
    for finding in surroundings.held:
        if surroundings.is_off:
            yield Check("upstream", State.WARN, finding, put_back(surroundings))
        else:
            yield Check("upstream", State.FAIL, finding, revert or unset)


def put_back(surroundings: Surroundings) -> str:
    """Command that makes SGLang's files those of its release again."""
    release = surroundings.release
    wanted = f"sglang=={release.public}" if release is not None else "sglang"
    return _revert(surroundings) or reinstall(wanted)


def _revert(surroundings: Surroundings) -> str | None:
    """The command, where ``patches apply`` brought the diffs: it takes no others."""
    package = surroundings.package
    if package is None or not (package / OURS / MANIFEST).is_file():
        return None
    return "sglang-ppfix patches revert"
