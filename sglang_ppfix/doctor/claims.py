"""Where the source of another plugin names a method of ours. Its code is not run."""

import ast
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from .surroundings import Surroundings
from .targets import hooks_of


class Claim(NamedTuple):
    """A place where another plugin names one of our targets.

    Attributes:
        target: our target.
        how: ``replace``, ``around``, ``assignment``; by default ``after``.
        named: what it names: our target, its class, or a mixin's method.
        place: file and line.
    """

    target: str
    how: str
    named: str
    place: str


class Names:
    """Which of our targets a name in another plugin's source means."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._tree = surroundings.tree
        self._hooks = hooks_of(surroundings.release)
        self._targets = {hook.target: hook.target for hook in self._hooks}
        for hook in self._hooks:
            owner = hook.target.rpartition(".")[0]
            self._targets.setdefault(owner, hook.target)

    @property
    def words(self) -> set[str]:
        """A file that means one of the targets holds at least one of these."""
        words = {"REPLACE"}
        for hook in self._hooks:
            method = hook.qualname.rpartition(".")[2]
            words.add(hook.qualname if method == "__init__" else method)
        return words

    def target(self, path: str) -> str | None:
        """Our target behind the dotted path of a method, its mixin's, or its class."""
        if path in self._targets:
            return self._targets[path]
        owner, _, method = path.rpartition(".")
        return self._of_a_base(method, lambda module, name: f"{module}.{name}" == owner)

    def target_of_tail(self, tail: str) -> str | None:
        """Our target behind ``Class.method``, whatever the class was imported from."""
        for hook in self._hooks:
            if hook.qualname == tail:
                return hook.target
        owner, _, method = tail.rpartition(".")
        return self._of_a_base(method, lambda _module, name: name == owner)

    def _of_a_base(
        self, method: str, is_owner: Callable[[str, str], bool]
    ) -> str | None:
        # Only for names that end in a method of ours: this parses the bases.
        for hook in self._hooks:
            if self._tree is None or hook.qualname.rpartition(".")[2] != method:
                continue
            owner = hook.qualname.rpartition(".")[0]
            for module, node in self._tree.lineage(hook.module, owner):
                if is_owner(module, node.name):
                    return hook.target
        return None


def sources(package: str) -> Iterator[Path]:
    """Python files of an installed package; nothing is imported."""
    spec = find_spec(package)
    if spec is None:
        return
    for folder in spec.submodule_search_locations or ():
        yield from sorted(Path(folder).rglob("*.py"))
    if not spec.submodule_search_locations and spec.origin is not None:
        yield Path(spec.origin)


def claims(path: Path, names: Names) -> Iterator[Claim]:
    """Every place of a file that names one of our targets."""
    try:
        text = path.read_text("utf-8")
        # Most files name none of the methods, and parsing is what takes the time.
        if "sglang" not in text or not any(word in text for word in names.words):
            return
        tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError):
        return  # whatever it is, Python cannot load it either
    strings = _Strings(tree)
    in_calls: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            arguments = (*node.args, *(keyword.value for keyword in node.keywords))
            for child in arguments:
                named = strings.value(child)
                target = names.target(named) if named.startswith("sglang.") else None
                if target is not None:
                    in_calls.add(id(child))
                    how = _hook_type(arguments)
                    yield Claim(target, how, named, f"{path}:{child.lineno}")
            tail = _set_by_call(node)
        elif isinstance(node, ast.Assign):
            tail = next(filter(None, map(_set_by_name, node.targets)), None)
        else:
            continue
        target = names.target_of_tail(tail) if tail else None
        if tail and target is not None:
            yield Claim(target, "assignment", tail, f"{path}:{node.lineno}")
    # A method's whole name elsewhere, as in a table that a loop registers.
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and id(node) not in in_calls:
            named = strings.value(node)
            if named.startswith("sglang.") and names.target(named) == named:
                yield Claim(named, "mentioned", named, f"{path}:{node.lineno}")


class _Strings:
    """Texts of a module: constants, and f-strings over its top-level constants."""

    def __init__(self, tree: ast.Module) -> None:
        self._constants = {
            target.id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
            for target in node.targets
            if isinstance(target, ast.Name)
        }

    def value(self, node: ast.expr) -> str:
        """Text of an expression; empty where it is none, or not known."""
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else ""
        if isinstance(node, ast.Name):
            return self._constants.get(node.id, "")
        if isinstance(node, ast.JoinedStr):
            return "".join(map(self.value, node.values))
        if isinstance(node, ast.FormattedValue):
            return self.value(node.value)
        return ""


def _hook_type(arguments: tuple[ast.expr, ...]) -> str:
    """``HookType.X`` among the arguments, else SGLang's default."""
    for child in arguments:
        if isinstance(child, ast.Attribute) and child.attr.isupper():
            return child.attr.lower()
    return "after"


def _set_by_name(target: ast.expr) -> str | None:
    """``Scheduler.method`` out of ``Scheduler.method = ...``."""
    if isinstance(target, ast.Attribute):
        owner = _last_name(target.value)
        return f"{owner}.{target.attr}" if owner else None
    return None


def _set_by_call(call: ast.Call) -> str | None:
    """``Scheduler.method`` out of ``setattr(Scheduler, "method", ...)``."""
    if not (isinstance(call.func, ast.Name) and call.func.id == "setattr"):
        return None
    if len(call.args) == 3 and isinstance(call.args[1], ast.Constant):
        owner = _last_name(call.args[0])
        return f"{owner}.{call.args[1].value!s}" if owner else None
    return None


def _last_name(node: ast.expr) -> str | None:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None
