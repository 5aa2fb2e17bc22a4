"""What differs between releases is known to ``compat`` alone."""

import ast
from pathlib import Path

import pytest

import sglang_ppfix

PACKAGE = Path(sglang_ppfix.__file__).parent
HOOKS = sorted((PACKAGE / "hooks").glob("*.py"))

#: Attributes that some tested releases have under this name and others do not; the
#: text says which function of ``compat.scheduler`` to ask.
CHANGING = {
    "extend_end": "computed_tokens",
    "extend_range": "computed_tokens",
    "fill_ids": "computed_tokens",
    "fill_len": "computed_tokens",
    "memory_budget": "add_future_tokens",
    "rem_total_token_offset": "add_future_tokens",
    "batch_to_run": "batch_to_run",
    "pp_max_micro_batch_size": "read_cap",
    "override": "write_cap",
}


@pytest.mark.parametrize("path", HOOKS, ids=lambda path: path.name)
def test_hooks_ask_compat(path):
    """Catches a hook that reads what another release has elsewhere: right on the
    newest, an AttributeError in the scheduler of an older one."""
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        name = node.attr if isinstance(node, ast.Attribute) else None
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value  # getattr(req, "extend_end", None)
        owner = getattr(node, "value", None)
        if isinstance(owner, ast.Name) and owner.id == "compat":
            continue
        if name in CHANGING:
            found.append(
                f"hooks/{path.name}:{node.lineno} reads {name}: ask "
                f"compat.scheduler.{CHANGING[name]}"
            )
    assert found == []
