"""SGLang's source files, read with ``ast`` and never imported.

An import of SGLang takes many seconds and wants a working torch; what must be known
before hooking stands in four files.
"""

import ast
import sys
from collections.abc import Iterator
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from importlib.abc import Traversable

PACKAGE = "sglang"

_Function = ast.FunctionDef | ast.AsyncFunctionDef


class SourceError(Exception):
    """A source file cannot be read or parsed; one line."""


class Definition(NamedTuple):
    """A function and the module whose file holds it."""

    module: str
    node: _Function


def package_folder(aside: Path | None = None) -> Path | None:
    """Folder of the package ``sglang`` that ``import sglang`` would take.

    Args:
        aside: entry of ``sys.path`` that does not count as long as another one has the
            package: ``python -m`` puts the working directory there.

    Returns:
        None where there is none, or where it is a folder without ``__init__.py``,
        which Python takes for a namespace package.
    """
    paths = [entry for entry in sys.path if aside is None or Path(entry) != aside]
    for entries in (paths, sys.path):
        for finder in sys.meta_path:
            path = entries if finder is PathFinder else None
            spec = finder.find_spec(PACKAGE, path)
            if spec is not None and spec.origin and spec.submodule_search_locations:
                return Path(spec.origin).parent
    return None


class SourceTree:
    """The package ``sglang``: a folder, or one inside a wheel (``zipfile.Path``)."""

    def __init__(self, folder: "Traversable") -> None:
        self.folder = folder
        # Each module is parsed once.
        self.module = lru_cache(maxsize=None)(self._module)

    def text(self, module: str) -> bytes | None:
        """Source of a dotted module, None where there is no such file.

        Raises:
            SourceError: the file cannot be read.
        """
        *folders, name = module.split(".")[1:]
        for names in ((*folders, f"{name}.py"), (*folders, name, "__init__.py")):
            path = self.folder.joinpath(*names)
            try:
                if path.is_file():
                    return path.read_bytes()
            except OSError as error:
                raise SourceError(f"{path} cannot be read: {error}") from error
        return None

    def _module(self, module: str) -> ast.Module | None:
        """Syntax tree of a module, None where there is no such file.

        Raises:
            SourceError: the file cannot be read, or is no Python to this interpreter.
        """
        text = self.text(module)
        if text is None:
            return None
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError) as error:
            raise SourceError(f"{module} is not readable Python: {error}") from error

    def find(self, module: str, qualname: str) -> Definition | None:
        """A function, or a method as instances of the class resolve it.

        Args:
            module: module that defines the class or function.
            qualname: ``function`` or ``Class.method``.
        """
        owner, _, name = qualname.rpartition(".")
        if not owner:
            tree = self.module(module)
            return None if tree is None else _named(module, tree, name)
        for home, node in self.lineage(module, owner):
            found = _named(home, node, name)
            if found is not None:
                return found
        return None

    def has_class(self, module: str, name: str) -> bool:
        """Whether the module defines or imports the class."""
        return next(self.lineage(module, name), None) is not None

    def lineage(self, module: str, name: str) -> Iterator[tuple[str, ast.ClassDef]]:
        """A class and its bases with their modules, depth first.

        That is Python's order as long as no two bases share one, which holds for the
        classes that are hooked.
        """
        tree = self.module(module)
        if tree is None:
            return
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                yield module, node
                for base in node.bases:
                    if isinstance(base, ast.Name):
                        yield from self.lineage(module, base.id)
                return
        origin = _import_of(tree, name)
        if origin is not None and origin.split(".")[0] == PACKAGE:
            yield from self.lineage(origin, name)

    def attributes(self, module: str, name: str) -> set[str]:
        """Names that instances of a class can have: methods, fields, ``self.x = ...``.

        What a decorator, a metaclass or ``setattr`` adds is not seen.
        """
        found: set[str] = set()
        for _, node in self.lineage(module, name):
            for child in ast.walk(node):
                if isinstance(child, _Function):
                    found.add(child.name)
                elif isinstance(child, ast.Attribute | ast.Name) and isinstance(
                    child.ctx, ast.Store
                ):
                    found.add(
                        child.attr if isinstance(child, ast.Attribute) else child.id
                    )
        return found


def parameters_of(node: _Function) -> str:
    """Parameter names without ``self``, spelled as ``patching.parameters_of`` does."""
    args = node.args
    names = [arg.arg for arg in (*args.posonlyargs, *args.args)]
    if args.vararg is not None:
        names.append(f"*{args.vararg.arg}")
    names += [arg.arg for arg in args.kwonlyargs]
    if args.kwarg is not None:
        names.append(f"**{args.kwarg.arg}")
    return ", ".join(names[1:] if names[:1] == ["self"] else names)


def _named(
    module: str, node: ast.Module | ast.ClassDef, name: str
) -> Definition | None:
    found = [n for n in node.body if isinstance(n, _Function) and n.name == name]
    return Definition(module, found[-1]) if found else None


def _import_of(tree: ast.Module, name: str) -> str | None:
    """Module of a top-level ``from module import name``, without an alias."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                if name == (alias.asname or alias.name) and name == alias.name:
                    return node.module
    return None
