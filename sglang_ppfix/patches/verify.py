"""Does every series fit its release, and does what comes out of it work?"""

from typing import NamedTuple

from packaging.version import Version

from . import PatchSetError, strict
from .folder import releases, series
from .package import Package, installed
from .trial import cpu_tests, patched, run, upstream_tests
from .wheels import WheelTree, fetch


class Verdict(NamedTuple):
    """What a series of one release came to.

    Attributes:
        patches: diffs that applied, each exactly where it says.
        files: files that they change.
        passed: CPU tests that passed on the patched tree; None where none ran.
        untested: why none ran.
    """

    release: Version
    patches: int
    files: int
    passed: int | None = None
    untested: str = ""


def verify(release: Version, test: bool = True) -> Verdict:
    """Apply a series to the fresh tree of its release, compile it, run the CPU tests.

    The tests are written for the newest release, and run where this interpreter has it
    installed: SGLang's dependencies differ between releases.

    Raises:
        PatchSetError: it does not apply, compile or pass; the line says where.
    """
    # A local build is not in the registry.
    release = Version(release.public)
    mails = series(release)
    tree = WheelTree(fetch(release))
    changed = strict.apply([(mail.path.name, mail.diff) for mail in mails], tree.read)
    for path, text in changed.items():
        try:
            compile(text, path, "exec")
        except SyntaxError as error:
            raise PatchSetError(f"sglang {release}: {path}: {error}") from error
    verdict = Verdict(release, len(mails), len(changed))
    return _test(verdict) if test else verdict._replace(untested="not asked for")


def _test(verdict: Verdict) -> Verdict:
    release = verdict.release
    folder = upstream_tests()
    if folder is None:
        return verdict._replace(untested="a wheel carries no CPU tests")
    if upstream_tests(release) is None:
        newest = releases()[0]
        return verdict._replace(untested=f"the CPU tests are for sglang {newest}")
    package = _installed(release)
    if package is None:
        return verdict._replace(untested="not the release of this interpreter")
    passed = 0
    with patched(package, release) as tree:
        for test in cpu_tests(folder):
            outcome = run(test, tree)
            for name, reason in outcome.failed.items():
                raise PatchSetError(f"sglang {release}: {name}: {reason}")
            passed += len(outcome.tests)
    return verdict._replace(passed=passed)


def _installed(release: Version) -> Package | None:
    try:
        package = installed()
        return package if Version(package.release().public) == release else None
    except PatchSetError:
        return None
