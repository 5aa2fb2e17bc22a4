"""Install, mark, verify and undo hooks. Knows wrapt, knows nothing of SGLang."""

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import wrapt

Wrapper = Callable[[Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]


class PatchError(Exception):
    """A hook cannot be installed, or is not where it should be; one line."""


@dataclass(frozen=True)
class Hook:
    """One method and the wrapper that goes around it.

    Attributes:
        module: module that defines the class.
        qualname: ``Class.method``. The class that instances really have, not a mixin
            of it: a hook on the class hides one on its mixin.
        wrapper: called as ``wrapper(wrapped, instance, args, kwargs)``.
        parameters: the parameter lists (without ``self``) that the wrapper knows,
            in the spelling of ``compat.probes.parameters_of``.
    """

    module: str
    qualname: str
    wrapper: Wrapper
    parameters: Sequence[str]

    @property
    def target(self) -> str:
        """Dotted path, as SGLang's own hook registry spells it."""
        return f"{self.module}.{self.qualname}"


if TYPE_CHECKING:
    _FunctionWrapper = wrapt.FunctionWrapper[Any, Any]
else:  # not generic at run time before wrapt 2
    _FunctionWrapper = wrapt.FunctionWrapper


class MarkedWrapper(_FunctionWrapper):
    """A function wrapper that can be told from anybody else's."""


def parameters_of(function: Callable[..., Any]) -> str:
    """Parameter names without ``self``, comma separated; ``*`` and ``**`` marked."""
    kinds: dict[Any, str] = {
        inspect.Parameter.VAR_POSITIONAL: "*",
        inspect.Parameter.VAR_KEYWORD: "**",
    }
    parameters = inspect.signature(function).parameters.values()
    names = [kinds.get(p.kind, "") + p.name for p in parameters]
    return ", ".join(names[1:] if names[:1] == ["self"] else names)


def resolve(hook: Hook) -> tuple[type, str]:
    """Class and method name of a hook.

    Raises:
        PatchError: the module, class or method does not exist.
    """
    owner_name, method = hook.qualname.rsplit(".", 1)
    try:
        owner = getattr(importlib.import_module(hook.module), owner_name)
    except (ImportError, AttributeError) as error:
        raise PatchError(f"{hook.target} does not exist: {error}") from error
    if inspect.getattr_static(owner, method, None) is None:
        raise PatchError(f"{hook.target} does not exist")
    return owner, method


def marked(value: Any) -> bool:
    """Whether a marked wrapper is anywhere in the chain of wrappers of ``value``."""
    return any(type(layer) is MarkedWrapper for layer in _layers(value))


def _layers(value: Any) -> Iterator[Any]:
    seen: set[int] = set()
    while value is not None and id(value) not in seen:
        seen.add(id(value))
        yield value
        # Bound proxies, as class access gives them, point back to the wrapper.
        parent = getattr(value, "_self_parent", None)
        if parent is not None and type(parent) is MarkedWrapper:
            yield parent
        value = getattr(value, "__wrapped__", None)


def probe(hook: Hook) -> None:
    """Check that the target exists and takes the parameters that the hook knows.

    Raises:
        PatchError: it does not.
    """
    owner, method = resolve(hook)
    found = parameters_of(getattr(owner, method))
    if found not in hook.parameters:
        known = " or ".join(f"({p})" for p in hook.parameters)
        raise PatchError(f"{hook.target} takes ({found}), expected {known}")


def install(hooks: Iterable[Hook]) -> None:
    """Probe every hook, then install those not yet there; all or none.

    Raises:
        PatchError: a probe failed; nothing was changed.
    """
    hooks = list(hooks)
    for hook in hooks:
        probe(hook)
    for hook in hooks:
        owner, method = resolve(hook)
        current = inspect.getattr_static(owner, method)
        if not marked(current):
            setattr(owner, method, MarkedWrapper(current, hook.wrapper))


def verify(hooks: Iterable[Hook]) -> None:
    """Check that what the class really resolves carries the mark.

    Raises:
        PatchError: another plugin replaced a hooked method.
    """
    for hook in hooks:
        owner, method = resolve(hook)
        current = inspect.getattr_static(owner, method)
        if not marked(current):
            where = getattr(current, "__module__", None) or "an unknown module"
            raise PatchError(f"{hook.target} was replaced by {where}")


def undo(hooks: Iterable[Hook]) -> list[str]:
    """Take the hooks out again.

    Returns:
        Targets that could not be restored, because another wrapper lies on top.
        Where the module was never imported there is nothing to undo.
    """
    stuck = []
    for hook in hooks:
        if hook.module not in sys.modules:
            continue
        owner, method = resolve(hook)
        current = inspect.getattr_static(owner, method)
        if type(current) is not MarkedWrapper:
            if marked(current):
                stuck.append(hook.target)
            continue
        original = current.__wrapped__
        delattr(owner, method)
        # A method that the class only inherits must be inherited again.
        if inspect.getattr_static(owner, method, None) is not original:
            setattr(owner, method, original)
    return stuck
