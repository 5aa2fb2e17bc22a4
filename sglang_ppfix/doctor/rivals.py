"""Other plugins that go for the same methods, found in their source.

Their code is not run. What they decide at run time is seen at start-up only
(``compat.rivals``).
"""

import ast
from collections.abc import Iterator
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from sglang_ppfix.compat.release import DISTRIBUTION

from .report import Check, State
from .surroundings import Surroundings
from .switch import NAME, PLUGINS_GROUP, is_loaded
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


def rivals(surroundings: Surroundings) -> Iterator[Check]:
    """Every other package with a plugin that would be loaded, and what it claims."""
    names = _names(surroundings)
    packages: dict[str, list[str]] = {}
    for point in entry_points(group=PLUGINS_GROUP):
        owner = point.dist.name if point.dist is not None else point.module
        if owner != DISTRIBUTION and is_loaded(surroundings, point.name, owner):
            package = point.module.partition(".")[0]
            packages.setdefault(package, []).append(point.name)
    clean = []
    for package, plugins in sorted(packages.items()):
        plugin = ", ".join(sorted(plugins))
        claims = [c for path in _sources(package) for c in _claims(path, names)]
        for claim in claims:
            yield _check(plugin, claim)
        if not claims:
            clean.append(plugin)
    if clean:
        text = f"{', '.join(clean)}: no hook on a method of ours was found"
        yield Check("other_plugins", State.OK, text)


def _check(plugin: str, claim: Claim) -> Check:
    where = f"plugin {plugin} ({claim.place})"
    fix = f"export SGLANG_PLUGINS={NAME}    # without {plugin}"
    if claim.how in ("replace", "assignment"):
        text = f"taken: {claim.target} is replaced by {where}"
        return Check("other_plugins", State.FAIL, text, fix, claim.target)
    if claim.named != claim.target:
        text = f"{where} hooks {claim.named}: our hook on {claim.target} can hide it"
        return Check("other_plugins", State.WARN, text, fix, claim.target)
    text = f"{where} hooks {claim.target}, too ({claim.how}): both run"
    return Check("other_plugins", State.OK, text, None, claim.target)


def _names(surroundings: Surroundings) -> dict[str, str]:
    """Every dotted path that means one of our targets, to that target."""
    names: dict[str, str] = {}
    tree = surroundings.tree
    for hook in hooks_of(surroundings.release):
        owner, method = hook.qualname.rsplit(".", 1)
        names[hook.target] = hook.target
        names.setdefault(f"{hook.module}.{owner}", hook.target)
        found = tree.find(hook.module, hook.qualname) if tree else None
        if tree is not None and found is not None and found.module != hook.module:
            for module, node in tree.lineage(hook.module, owner):
                if module == found.module:
                    names[f"{module}.{node.name}.{method}"] = hook.target
    return names


def _sources(package: str) -> Iterator[Path]:
    """Python files of an installed package; nothing is imported."""
    spec = find_spec(package)
    if spec is None:
        return
    for folder in spec.submodule_search_locations or ():
        yield from sorted(Path(folder).rglob("*.py"))
    if not spec.submodule_search_locations and spec.origin is not None:
        yield Path(spec.origin)


def _claims(path: Path, names: dict[str, str]) -> Iterator[Claim]:
    try:
        text = path.read_text("utf-8")
        # Most files name none of the methods, and parsing is what takes the time.
        if "sglang" not in text or not any(word in text for word in _words(names)):
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
                if named in names:
                    in_calls.add(id(child))
                    how = _hook_type(arguments)
                    yield Claim(names[named], how, named, f"{path}:{child.lineno}")
            tail = _set_by_call(node)
        elif isinstance(node, ast.Assign):
            tail = next(filter(None, map(_set_by_name, node.targets)), None)
        else:
            continue
        for name, target in names.items():
            if tail is not None and name.endswith(f".{tail}"):
                yield Claim(target, "assignment", name, f"{path}:{node.lineno}")
                break
    # A method's whole name elsewhere, as in a table that a loop registers.
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and id(node) not in in_calls:
            named = strings.value(node)
            if names.get(named) == named:
                yield Claim(named, "mentioned", named, f"{path}:{node.lineno}")


def _words(names: dict[str, str]) -> set[str]:
    """Words of which a file that claims one of ``names`` holds at least one."""
    words = {"REPLACE"}
    for name in names.values():
        owner, method = name.split(".")[-2:]
        words.add(f"{owner}.{method}" if method == "__init__" else method)
    return words


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
