"""One diff: a ``git format-patch`` mail with DEP-3 fields in its message."""

import email
from email.message import Message
from pathlib import Path
from typing import NamedTuple

from . import PatchSetError

#: DEP-3 fields that every mail must have, besides From and Subject.
FIELDS = ("Why", "How", "Forwarded", "Last-Update")


class Mail(NamedTuple):
    """A diff with its reasons.

    Attributes:
        path: the file.
        subject: first line of the commit message, without ``[PATCH]``.
        fields: DEP-3 fields; the lines of a value are joined.
        diff: the unified diff, paths as in the wheel (``a/sglang/...``).
        text: the whole mail.
    """

    path: Path
    subject: str
    fields: dict[str, str]
    diff: str
    text: str


def read_mail(path: Path) -> Mail:
    """Read and check a mail.

    Raises:
        PatchSetError: it is missing, or lacks a field or a diff.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise PatchSetError(f"{path} is named in its series but missing") from None
    message = email.message_from_string(text)
    body = str(message.get_payload())
    head, found, diff = body.partition("\ndiff --git ")
    if not found:
        raise PatchSetError(f"{path} holds no diff")
    fields = _fields(head.split("\n---\n")[0])
    missing = [name for name in FIELDS if not fields.get(name)]
    if missing:
        raise PatchSetError(f"{path} lacks the field {', '.join(missing)}")
    return Mail(path, _subject(message), fields, f"diff --git {diff}", text)


def _subject(message: Message) -> str:
    subject = " ".join(str(message["Subject"]).split())
    return subject.removeprefix("[PATCH]").strip()


def _fields(message: str) -> dict[str, str]:
    """Fields of the form ``Name: text``, continued on lines that start with a space."""
    fields: dict[str, str] = {}
    name = None
    for line in message.splitlines():
        head, colon, value = line.partition(":")
        if line.startswith(" ") and name:
            fields[name] += " " + line.strip()
        elif colon and head in FIELDS:
            name = head
            fields[name] = value.strip()
        else:
            name = None
    return fields
