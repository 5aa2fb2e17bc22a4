#!/usr/bin/env python3
"""Make and refresh ``patches/``, with git.

  make_patches.py checkout 0.5.23 DIR        SGLang's source as a git tree, with the
                                             series of the release as commits
  make_patches.py port 0.5.23 0.5.22 DIR     the tree of 0.5.22 with the series of
                                             0.5.23; git says where it conflicts
  make_patches.py save 0.5.22 DIR            the commits of DIR as patches/sglang-0.5.22
  make_patches.py refresh                    every series again, with the rule as
                                             policy/ states it now

A commit message is a subject, an empty line and the DEP-3 fields. To change a diff:
``checkout``, change the commits (``git rebase -i base``), ``save``.
"""

import argparse
import filecmp
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from packaging.version import Version

from sglang_ppfix.patches.folder import ORDER, PREFIX, releases, root, series
from sglang_ppfix.patches.generate import FILLING, MODULE, SIZING, generate
from sglang_ppfix.patches.wheels import fetch

AUTHOR = ("sglang-ppfix authors", "authors@sglang-ppfix.invalid")
RULE = f"sglang/{MODULE}"
# Short names, so that a reader sees the concern and not a number.
NAMES = ("derive-cap", "balanced-filling", "memory-all-slots", "true-totals")


def main() -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("checkout", "port", "save", "refresh"):
        command = commands.add_parser(name)
        if name != "refresh":
            command.add_argument("release", type=Version)
        if name == "port":
            command.add_argument("target", type=Version)
        if name != "refresh":
            command.add_argument("folder", type=Path)
    args = parser.parse_args()
    if args.command == "checkout":
        checkout(args.release, args.folder)
    elif args.command == "port":
        port(args.release, args.target, args.folder)
    elif args.command == "save":
        save(args.release, args.folder)
    else:
        for release in releases():
            refresh(release)
    return 0


def checkout(release: Version, folder: Path) -> None:
    """A git tree of the release with its series on top of the tag ``base``."""
    _base(release, folder)
    for mail in series(release):
        _git(folder, "am", "--quiet", "--keep-non-patch", str(mail.path.resolve()))


def port(release: Version, target: Version, folder: Path) -> None:
    """The series of one release on the tree of another, merged three ways."""
    checkout(release, folder)
    _git(folder, "checkout", "--quiet", "--orphan", "target")
    _git(folder, "rm", "--quiet", "-r", "--force", ".")
    _unpack(target, folder)
    _commit_base(folder, target)
    for commit in _log(folder, "base..main"):
        done = _try(folder, "cherry-pick", commit)
        if done.returncode:
            sys.exit(f"{done.stdout}{done.stderr}\nresolve in {folder}, then go on")
    _git(folder, "tag", "--force", "base", "target-base")


def save(release: Version, folder: Path) -> None:
    """Write the commits after ``base`` as mails."""
    out = root() / f"{PREFIX}{release}"
    out.mkdir(exist_ok=True)
    names = []
    commits = _log(folder, "base..HEAD")
    for commit, name in zip(commits, NAMES, strict=True):
        text = _git(
            *(folder, "format-patch", "-1", "--stdout", commit),
            *("--zero-commit", "--no-signature", "--full-index", "-N", "--no-renames"),
        )
        mail = out / f"{name}.patch"
        mail.write_text(_normalised(text), encoding="utf-8")
        same = _same_in_newer(release, mail)
        if same is not None:
            mail.unlink()
        names.append(f"{same or mail.name}\n")
    (out / ORDER).write_text("".join(names), encoding="utf-8")


def _same_in_newer(release: Version, mail: Path) -> str | None:
    """Path, as a series has it, to the same mail of a newer release."""
    for newer in releases():
        other = root() / f"{PREFIX}{newer}" / mail.name
        if newer > release and other.is_file() and filecmp.cmp(other, mail, False):
            return f"../{other.parent.name}/{other.name}"
    return None


def refresh(release: Version) -> None:
    """Save a series again, with the generated module as it would be made now."""
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        checkout(release, folder)
        commits = _log(folder, "base..main")
        _git(folder, "checkout", "--quiet", "--detach", "base")
        for commit in commits:
            _git(folder, "checkout", "--quiet", commit, "--", ".")
            names = SIZING + FILLING if "TurnPlan" in _rule(folder) else SIZING
            (folder / RULE).write_text(generate(names), encoding="utf-8")
            _git(folder, "add", "--all")
            _git(folder, "commit", "--quiet", "--reuse-message", commit)
        save(release, folder)


def _rule(folder: Path) -> str:
    return (folder / RULE).read_text(encoding="utf-8")


def _base(release: Version, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        sys.exit(f"{folder} is not empty")
    _git(folder, "init", "--quiet", "--initial-branch", "main")
    _unpack(release, folder)
    _commit_base(folder, release)
    _git(folder, "tag", "base")


def _commit_base(folder: Path, release: Version) -> None:
    _git(folder, "add", "--all", "--force")
    _git(folder, "commit", "--quiet", "--message", f"sglang {release}")
    _git(folder, "tag", "--force", "target-base")


def _unpack(release: Version, folder: Path) -> None:
    with zipfile.ZipFile(fetch(release)) as wheel:
        for info in wheel.infolist():
            name = info.filename
            if name.startswith("sglang/srt/") and name.endswith(".py"):
                # The mode is part of a diff.
                mode = info.external_attr >> 16
                Path(wheel.extract(info, folder)).chmod(mode & 0o777 or 0o644)


def _normalised(text: str) -> str:
    """The mail as of its Last-Update, from the authors, whoever ran this and when."""
    found = re.search(r"^Last-Update: (\d{4}-\d\d-\d\d)$", text, re.MULTILINE)
    if found is None:
        sys.exit("a commit message lacks the field Last-Update")
    day = subprocess.run(
        ["date", "-u", "-R", "-d", found[1]], capture_output=True, text=True, check=True
    ).stdout.strip()
    text = re.sub(r"^Date: .*$", f"Date: {day}", text, count=1, flags=re.MULTILINE)
    sender = f"From: {AUTHOR[0]} <{AUTHOR[1]}>"
    return re.sub(r"^From: .*$", sender, text, count=1, flags=re.MULTILINE)


def _log(folder: Path, span: str) -> list[str]:
    return _git(folder, "rev-list", "--reverse", span).split()


def _git(folder: Path, *words: str) -> str:
    done = _try(folder, *words)
    if done.returncode:
        sys.exit(f"git {' '.join(words)}: {done.stdout}{done.stderr}")
    return done.stdout


def _try(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    who = {
        f"GIT_{role}_{key}": value
        for role in ("AUTHOR", "COMMITTER")
        for key, value in zip(("NAME", "EMAIL"), AUTHOR, strict=True)
    }
    return subprocess.run(
        ["git", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        # No configuration of the user or the machine in what is written.
        env={**os.environ, **who, "GIT_CONFIG_GLOBAL": "/dev/null"},
    )


if __name__ == "__main__":
    sys.exit(main())
