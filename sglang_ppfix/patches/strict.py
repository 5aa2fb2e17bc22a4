"""Apply unified diffs to text, exactly where they say: no fuzz, no offset."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from . import PatchSetError

if TYPE_CHECKING:
    from unidiff.patch import PatchedFile

#: Text of a file of the tree by its path, None where there is none.
Read = Callable[[str], str | None]


def apply(
    diffs: list[tuple[str, str]], read: Read, only: str | None = None
) -> dict[str, str]:
    """New text of every file that the diffs touch.

    Args:
        diffs: (name, unified diff), in order.
        read: the tree before the first one.
        only: the one path to apply to; all if None.

    Raises:
        PatchSetError: a diff does not match the tree, or deletes or renames a file.
    """
    changed: dict[str, str] = {}
    for name, diff in diffs:
        for file in _parse(name, diff):
            if only is not None and file.path != only:
                continue
            if file.is_rename or file.is_removed_file or file.is_binary_file:
                raise PatchSetError(f"{name}: {file.path} is not changed in place")
            old = changed.get(file.path, read(file.path))
            if file.is_added_file and old is not None:
                raise PatchSetError(
                    f"{name}: {file.path} exists already, and is not as any series "
                    "has it: remove it if SGLang does not use it"
                )
            if not file.is_added_file and old is None:
                raise PatchSetError(f"{name}: {file.path} does not exist")
            changed[file.path] = _apply_file(name, file, old or "")
    return changed


def touched(diffs: list[tuple[str, str]]) -> dict[str, bool]:
    """Paths that the diffs touch, and whether the tree must have them already."""
    paths: dict[str, bool] = {}
    for name, diff in diffs:
        for file in _parse(name, diff):
            paths.setdefault(file.path, not file.is_added_file)
    return paths


def _parse(name: str, diff: str) -> "list[PatchedFile]":
    try:
        from unidiff.errors import UnidiffParseError
        from unidiff.patch import PatchSet
    except ImportError:
        raise PatchSetError(
            "this needs unidiff: pip install 'sglang-ppfix[patches]'"
        ) from None
    try:
        return PatchSet.from_string(diff)
    except UnidiffParseError as error:
        raise PatchSetError(f"{name} is not a unified diff: {error}") from error


def _apply_file(name: str, file: "PatchedFile", old: str) -> str:
    before = old.splitlines(keepends=True)
    after: list[str] = []
    done = 0
    for hunk in file:
        # A hunk without source lines goes after the line that it names.
        start = hunk.source_start - (1 if hunk.source_length else 0)
        after += before[done:start]
        done = start
        for line in hunk:
            if line.is_added:
                after.append(line.value)
                continue
            found = before[done] if done < len(before) else "the end of the file"
            if found != line.value:
                raise PatchSetError(
                    f"{name}: {file.path}:{done + 1} is {found.strip()!r}, "
                    f"expected {line.value.strip()!r}"
                )
            done += 1
            if line.is_context:
                after.append(line.value)
    return "".join(after + before[done:])
