"""Wraps what the lab needs of SGLang, after a look whether it is there."""

import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import wrapt

Wrapper = Callable[[Callable[..., Any], Any, Any, Any], Any]


def wrap_target(
    module: ModuleType, name: str, parameter: str | None, wrapper: Wrapper
) -> None:
    """Wrap ``name`` of ``module``, or end the process with one line.

    ``load_plugins()`` swallows exceptions; an exit cannot be overlooked.

    Args:
        module: imported module of SGLang.
        name: ``function`` or ``Class.method``.
        parameter: one that the wrapper relies on; ``None`` if it needs none.
        wrapper: as wrapt wants it.
    """
    target: Any = module
    for part in name.split("."):
        target = getattr(target, part, None)
    missing = target is None
    if parameter is not None and not missing:
        missing = parameter not in inspect.signature(target).parameters
    if missing:
        sys.exit(
            f"sglang-ppfix lab: {module.__name__}.{name}({parameter or ''}) does not "
            "exist in this SGLang"
        )
    wrapt.wrap_function_wrapper(module, name, wrapper)
