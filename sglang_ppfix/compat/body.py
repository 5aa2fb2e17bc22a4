"""Fingerprint of a function's body: the same text to Python, the same fingerprint.

Comments, blank space, docstrings, annotations and decorators do not count, nor does
the Python that parses: ``ast.dump`` differs between its releases, so it is not used.
"""

import ast
import hashlib
from collections.abc import Iterator

# Fields that carry no meaning to the interpreter, or that only some Pythons have.
_IGNORED = frozenset(
    {
        "annotation",
        "ctx",
        "decorator_list",
        "kind",
        "returns",
        "type_comment",
        "type_params",
    }
)


def fingerprint(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """16 hexadecimal digits over the normalised syntax tree, name included."""
    digest = hashlib.blake2b(digest_size=8)
    for piece in _pieces(node):
        digest.update(piece.encode())
    return digest.hexdigest()


def _pieces(value: object) -> Iterator[str]:
    if isinstance(value, ast.AnnAssign):
        # With its annotation gone it is an assignment; a bare one does nothing.
        plain = ast.Assign([value.target], value.value) if value.value else ast.Pass()
        yield from _pieces(plain)
    elif isinstance(value, ast.AST):
        yield f"{type(value).__name__}("
        for name in value._fields:
            field = getattr(value, name, None)
            if name in _IGNORED or field is None or field == []:
                continue
            if name == "body" and isinstance(field, list):
                field = _without_docstring(field)
            yield f"{name}="
            yield from _pieces(field)
        yield ")"
    elif isinstance(value, list):
        yield "["
        for item in value:
            yield from _pieces(item)
            yield ","
        yield "]"
    else:
        yield f"{type(value).__name__}:{value!r};"


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0]
    if (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    ):
        return body[1:] or [ast.Pass()]
    return body
