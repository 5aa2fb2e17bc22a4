"""Mails that ``git am`` takes in an SGLang checkout, the tests, and the PR text."""

import hashlib
import re
from pathlib import Path

from packaging.version import Version

from . import PatchSetError
from .folder import series
from .mail import Mail
from .pr_text import pr_text
from .trial import upstream_tests

#: Where the package lies in SGLang's checkout; a wheel has it at the top.
CHECKOUT = "python/"
PR_TEXT = "PR.md"

_TEST_SUBJECT = "PP: test how the micro-batch slots are filled"
_TEST_MESSAGE = """\
The CPU test drives the real event loop with stub forwards, so one iteration is
one turn of one slot and every interleaving is exact; each of its cases fails
before this series. The GPU tests compare PP with no PP and read the slots from
the log."""


def export(release: Version, out: Path) -> list[Path]:
    """Write everything that a pull request needs into a new or empty folder.

    Returns:
        What was written: mails in their order, then the text of the pull request.

    Raises:
        PatchSetError: the folder holds something.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise PatchSetError(f"{out} exists and is not an empty folder")
    mails = series(release)
    texts = [(mail.path.stem, in_checkout(mail.text)) for mail in mails]
    tests = upstream_tests(release)
    if tests is not None:
        texts.append(("tests", _tests_mail(tests, mails[-1])))
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for number, (name, text) in enumerate(texts, 1):
        path = out / f"{number:04}-{name}.patch"
        path.write_text(text, encoding="utf-8")
        written.append(path)
    written.append(out / PR_TEXT)
    written[-1].write_text(pr_text(release, mails), encoding="utf-8")
    return written


def in_checkout(text: str) -> str:
    """A mail with the paths of a checkout in the place of those of a wheel."""
    head, mark, diff = text.partition("\ndiff --git ")
    # The summary of changes comes after the message, and hunks keep their text.
    message, rule, stat = head.partition("\n---\n")
    listed = re.compile(r"^( (?:create mode \d+ )?)(sglang/)", re.MULTILINE)
    stat = listed.sub(rf"\1{CHECKOUT}\2", stat)
    lines = f"{mark}{diff}".splitlines(keepends=True)
    return message + rule + stat + "".join(map(_in_checkout, lines))


def _in_checkout(line: str) -> str:
    if line.startswith("diff --git a/"):
        return re.sub(r" ([ab])/sglang/", rf" \1/{CHECKOUT}sglang/", line)
    if re.match(r"(--- a|\+\+\+ b)/sglang/", line):
        return line.replace("/sglang/", f"/{CHECKOUT}sglang/", 1)
    return line


def _tests_mail(folder: Path, last: Mail) -> str:
    """The tests as new files, sent like the last diff of the series."""
    sender = re.search(r"^From: .*$", last.text, re.MULTILINE)
    date = re.search(r"^Date: .*$", last.text, re.MULTILINE)
    assert sender is not None
    assert date is not None
    parts = [
        f"From {'0' * 40} Mon Sep 17 00:00:00 2001",
        sender[0],
        date[0],
        f"Subject: [PATCH] {_TEST_SUBJECT}",
        "",
        _TEST_MESSAGE,
        "---",
    ]
    for path in sorted((folder / "test").rglob("*.py")):
        parts.append(_new_file(str(path.relative_to(folder)), path.read_text("utf-8")))
    return "\n".join(parts) + "\n"


def _new_file(path: str, text: str) -> str:
    lines = text.splitlines()
    data = text.encode()
    blob = hashlib.sha1(f"blob {len(data)}\0".encode() + data, usedforsecurity=False)
    return "\n".join(
        [
            f"diff --git a/{path} b/{path}",
            "new file mode 100644",
            f"index {'0' * 40}..{blob.hexdigest()}",
            "--- /dev/null",
            f"+++ b/{path}",
            f"@@ -0,0 +1,{len(lines)} @@",
            *(f"+{line}" for line in lines),
        ]
    )
