"""``sglang-ppfix patches``."""

import argparse
from collections.abc import Callable
from pathlib import Path

from packaging.version import InvalidVersion, Version

from sglang_ppfix.patches import PatchSetError, installed
from sglang_ppfix.patches.export import export
from sglang_ppfix.patches.folder import releases, series
from sglang_ppfix.patches.package import Package
from sglang_ppfix.patches.package import installed as installed_package
from sglang_ppfix.patches.verify import verify

from . import UserError

HELP = "the same change as diffs: list, verify, export, apply, revert"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _action(actions, "list", "the diffs of every release", _list)
    check = _action(
        actions, "verify", "apply every series to a fresh tree, compile, test", _verify
    )
    check.add_argument("--release", type=_release, help="only this release")
    check.add_argument("--no-tests", action="store_true", help="apply and compile only")
    out = _action(actions, "export", "mails for git am, tests, PR text", _export)
    out.add_argument("--release", type=_release, default=None, help="default: newest")
    out.add_argument("--out", type=Path, required=True, help="empty or new folder")
    for name, help_text, action in (
        ("apply", "change the installed SGLang", _apply),
        ("revert", "make the installed SGLang stock again", _revert),
    ):
        change = _action(actions, name, help_text, action)
        change.add_argument(
            "--package",
            type=Path,
            help="package folder (default: the SGLang that this interpreter imports)",
        )
        if name == "apply":
            change.add_argument(
                "--release", type=_release, help="default: by the package's metadata"
            )


def run(args: argparse.Namespace) -> int:
    """0: done; 1: a series does not hold."""
    try:
        return int(args.do(args))
    except PatchSetError as error:
        raise UserError(str(error)) from error
    except OSError as error:
        raise UserError(str(error)) from error


def _action(
    actions: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    help_text: str,
    do: Callable[[argparse.Namespace], int],
) -> argparse.ArgumentParser:
    action = actions.add_parser(name, help=help_text, description=help_text)
    action.set_defaults(do=do)
    return action


def _release(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        raise argparse.ArgumentTypeError(f"{text!r} is not a release") from None


def _list(args: argparse.Namespace) -> int:
    for release in releases():
        print(f"sglang {release}")
        for mail in series(release):
            print(f"  {mail.path.name:26} {mail.subject}")
    return 0


def _verify(args: argparse.Namespace) -> int:
    status = 0
    for release in [args.release] if args.release else releases():
        try:
            verdict = verify(release, test=not args.no_tests)
        except PatchSetError as error:
            print(f"sglang {release!s:12} FAILED: {error}")
            status = 1
            continue
        tested = (
            f"not tested ({verdict.untested})"
            if verdict.passed is None
            else f"tested: {verdict.passed} CPU tests pass"
        )
        print(
            f"sglang {release!s:12} applies: {verdict.patches} diffs, no fuzz, no "
            f"offset; {verdict.files} files compile; {tested}"
        )
    return status


def _export(args: argparse.Namespace) -> int:
    for path in export(args.release or releases()[0], args.out):
        print(path)
    return 0


def _apply(args: argparse.Namespace) -> int:
    package = _package(args)
    release = args.release or package.release()
    return _change(lambda: installed.apply(package, release), f"sglang {release} has")


def _revert(args: argparse.Namespace) -> int:
    package = _package(args)
    return _change(lambda: installed.revert(package), "stock again:")


def _change(change: Callable[[], list[str]], said: str) -> int:
    try:
        changed = change()
    except installed.Done as nothing:
        print(nothing)
        return 0
    print(f"{said} {len(changed)} changed files; restart running servers")
    return 0


def _package(args: argparse.Namespace) -> Package:
    return Package(args.package) if args.package else installed_package()
