"""Other plugins that took a method of ours, seen in a running process."""

import inspect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from sglang_ppfix.patching import Hook

_REGISTRY = "sglang.srt.plugins.hook_registry"


def replaced(hooks: Iterable[Hook]) -> Iterator[str]:
    """One line for each hooked method that SGLang's registry is asked to replace.

    Its REPLACE hooks keep ``__wrapped__``, so the replacement looks like a wrapper
    around ours although it never calls it (``_wrap_fn``, 0.5.11 to 0.5.23).
    """
    registry = getattr(sys.modules.get(_REGISTRY), "HookRegistry", None)
    table: dict[str, list[Any]] = getattr(registry, "_hooks", {})
    for hook in hooks:
        for target in (hook.target, hook.target.rpartition(".")[0]):
            for kind, _function, source in table.get(target, ()):
                if kind.value == "replace":
                    name = getattr(source, "plugin_name", None) or "an unknown one"
                    yield f"{hook.target} is replaced by another plugin: {name}"


def foreign(hooks: Iterable[Hook], package: Path) -> Iterator[str]:
    """One line for each method whose innermost function is not SGLang's own.

    Args:
        hooks: what is to be hooked; the modules are imported.
        package: folder of the package ``sglang``.
    """
    for hook in hooks:
        owner: Any = sys.modules.get(hook.module)
        for name in hook.qualname.split("."):
            owner = inspect.getattr_static(owner, name, None)
        function = inspect.unwrap(owner) if callable(owner) else None
        code = getattr(function, "__code__", None)
        if code is not None and package not in Path(code.co_filename).parents:
            module = getattr(function, "__module__", None) or code.co_filename
            yield f"{hook.target} was replaced by {module}"
