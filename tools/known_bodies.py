"""Write ``sglang_ppfix/compat/known_bodies.json``, after reading what changed.


    python tools/known_bodies.py show 0.5.24    # what changed since the newest known
    python tools/known_bodies.py add 0.5.24     # read them all? then they are known
    python tools/known_bodies.py rewrite        # after hooks or the contract changed

``add`` states that a person has read what ``show`` prints and found that the hooks
hold; nothing else does.
"""

import argparse
import ast
import difflib
import json
import sys
from collections import defaultdict
from pathlib import Path

import wheels
from packaging.version import Version

from sglang_ppfix.compat.body import fingerprint
from sglang_ppfix.compat.contract import BODIES, Body
from sglang_ppfix.compat.drift import file_digest, search
from sglang_ppfix.compat.known import FILE, known
from sglang_ppfix.compat.source import SourceTree
from sglang_ppfix.compat.upstream import fixed_upstream
from sglang_ppfix.doctor.targets import hooks_of

PATH = Path(__file__).parents[1] / "sglang_ppfix" / "compat" / FILE


def main() -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("rewrite")
    for name in ("show", "add"):
        commands.add_parser(name).add_argument("release", type=Version, nargs="+")
    args = parser.parse_args()
    tested = set(known().releases)
    try:
        if args.command == "show":
            for release in args.release:
                older = max((r for r in tested if r < release), default=None)
                show(older, release)
            return 0
        write(sorted(tested | set(getattr(args, "release", ()))))
    except wheels.Offline as error:
        print(f"known_bodies: {error}", file=sys.stderr)
        return 2
    return 0


def show(old: Version | None, new: Version) -> None:
    """Print how each body changed between two releases."""
    for body in BODIES:
        before, after = (lines(body, release) for release in (old, new))
        sys.stdout.writelines(
            difflib.unified_diff(
                before,
                after,
                f"{old} {body.target}",
                f"{new} {body.target} ({body.why})",
            )
        )


def lines(body: Body, release: Version | None) -> list[str]:
    """Lines of a body without comments, none where it does not exist."""
    if release is None:
        return []
    found = wheels.tree(release).find(body.module, body.qualname)
    return [] if found is None else ast.unparse(found.node).splitlines(keepends=True)


class _Recording(SourceTree):
    """Notes what is read."""

    def __init__(self, tree: SourceTree) -> None:
        super().__init__(tree.folder)
        self.read: dict[str, bytes] = {}

    def text(self, module: str) -> bytes | None:
        text = super().text(module)
        if text is not None:
            self.read[module] = text
        return text


def write(releases: list[Version]) -> None:
    """Write the data file for these releases."""
    bodies: dict[str, dict[str, list[str]]] = {
        body.target: defaultdict(list) for body in BODIES
    }
    files: dict[str, dict[str, list[str]]] = {}
    for release in releases:
        tree = _Recording(wheels.tree(release))
        search(tree, hooks_of(release), release)
        list(fixed_upstream(tree))
        for module, text in sorted(tree.read.items()):
            digest = str(file_digest(text))
            files.setdefault(module, {}).setdefault(digest, []).append(str(release))
        for body in BODIES:
            found = tree.find(body.module, body.qualname)
            if found is None:
                sys.exit(f"known_bodies: {body.target} does not exist in {release}")
            bodies[body.target][fingerprint(found.node)].append(str(release))
    content = {
        "releases": " ".join(map(str, releases)),
        "bodies": _joined(bodies),
        "files": _joined(dict(sorted(files.items()))),
    }
    PATH.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _joined(lists: dict[str, dict[str, list[str]]]) -> dict[str, dict[str, str]]:
    """One line a digest, so that a diff of the file reads well."""
    return {
        name: {digest: " ".join(same) for digest, same in digests.items()}
        for name, digests in lists.items()
    }


if __name__ == "__main__":
    sys.exit(main())
