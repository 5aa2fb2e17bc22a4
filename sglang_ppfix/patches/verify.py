"""Does every series fit its release, and does what comes out of it work?"""

from typing import NamedTuple

from packaging.version import Version

from . import PatchSetError, strict
from .folder import series
from .package import Package, installed
from .trial import cpu_tests, patched, run, upstream_tests
from .wheels import WheelTree, fetch


class Verdict(NamedTuple):
    """What a series of one release came to.

    Attributes:
        patches: diffs that applied, each exactly where it says.
        files: files that they change.
        tests: CPU tests that passed on the patched tree, or why none ran.
    """

    release: Version
    patches: int
    files: int
    tests: str


def verify(release: Version, test: bool = True) -> Verdict:
    """Apply a series to the fresh tree of its release, compile it, run the CPU tests.

    The tests run where this interpreter has that very release installed: SGLang's
    dependencies differ between releases.

    Raises:
        PatchSetError: it does not apply, compile or pass; the line says where.
    """
    mails = series(release)
    tree = WheelTree(fetch(release))
    changed = strict.apply([(mail.path.name, mail.diff) for mail in mails], tree.read)
    for path, text in changed.items():
        try:
            compile(text, path, "exec")
        except SyntaxError as error:
            raise PatchSetError(f"sglang {release}: {path}: {error}") from error
    tests = _test(release) if test else "not asked for"
    return Verdict(release, len(mails), len(changed), tests)


def _test(release: Version) -> str:
    folder = upstream_tests(release)
    if folder is None:
        return "none for this release here"
    package = _installed(release)
    if package is None:
        return "this interpreter has another release"
    passed = 0
    with patched(package, release) as tree:
        for test in cpu_tests(folder):
            outcome = run(test, tree)
            for name, reason in outcome.failed.items():
                raise PatchSetError(f"sglang {release}: {name}: {reason}")
            passed += len(outcome.tests)
    return f"{passed} passed"


def _installed(release: Version) -> Package | None:
    try:
        package = installed()
        return package if package.release() == release else None
    except PatchSetError:
        return None
