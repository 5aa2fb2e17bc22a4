"""The rule as SGLang would carry it: one module, made from ``policy/``.

Plugin and diffs cannot part: function bodies are copied from the source of
``policy/``, character by character. What differs is what upstream's style wants:
docstrings without ``Args`` blocks, and a ``msgspec.Struct`` for a container.
"""

import ast
import inspect
from types import ModuleType

from sglang_ppfix.policy import filling, sizing

#: Where the generated module lies in SGLang's tree.
MODULE = "srt/managers/pp_filling.py"

#: Names of policy/ in the order of the generated module; the cap comes first.
SIZING = ("LATENCY_HIDING_SLOTS", "target_slots", "derive_cap")
FILLING = (
    "TurnPlan",
    "plan_turn",
    "turns_more",
    "good_starts",
    "may_start",
    "water_level",
    "token_share",
)

_HEADER = '''\
"""How many requests a pipeline-parallel micro-batch slot may hold.

Pure functions of values that every PP rank sees alike in the same iteration of
the event loop: no clock, no free memory, no random numbers.
"""
'''

_DOCSTRINGS = {
    "target_slots": """\
Number of slots that the requests are spread over.""",
    "derive_cap": """\
Largest micro-batch that ``slots`` slots need to hold every request.

Rounding down would lose rows: 60 over 8 gives 7, and 8 slots of 7 hold 56.""",
    "TurnPlan": """\
What the slots may do in a turn.

``shares`` bounds the requests that each slot may hold, new ones included; it is 0
for a slot that is not to be filled. ``live`` counts the unfinished requests of all
slots, ``free`` the rows that are left, ``admissible`` the waiting requests that
these could take.""",
    "plan_turn": """\
Decide the shares: the waiting requests level the slots.

``occupancy`` counts unfinished requests per slot, each in the slot that will keep
it; for a chunked prefill in progress that is the slot of its last chunk.""",
    "turns_more": """\
Turns after the present one that a prefill of ``tokens`` tokens needs.

The present turn can take ``first`` of them. A chunk goes on in the next slot, so
the request lands that many slots further on, and decodes there.""",
    "good_starts": """\
Slots from which a prompt lands where there is room, ``more`` slots further on.

``slot``, whose turn it is, can start it. Another that holds ``cap`` requests starts
nothing, not even what would land elsewhere.""",
    "may_start": """\
Whether a prompt may start in ``slot``: is there room where it will land?

A prompt that is refused is passed on to a slot of its ``good_starts``; that one's
turn comes within a lap. Nobody overtakes it. ``passed`` counts the turns in a row
that passed the head of the queue on.""",
    "water_level": """\
Level that ``poured`` requests reach over ``occupancy``, and the rest.

``rest`` slots can be one higher than the level.""",
    "token_share": """\
Prompt tokens after which a turn leaves the rest to the next slots.

Prefill time is linear in tokens, and the slot with most of them stretches the lap
of all slots; the same prompts spread over the slots of one lap do not.
``prefill_tokens`` counts the tokens in flight per slot, 0 for the present one.""",
}

_COMMENTS = {
    "LATENCY_HIDING_SLOTS": """\
# With several slots filled, a lap of P + D slots takes up to P + D stage times: up to
# a depth of P - 2 the whole ring costs no more than P slots of it. Beyond, 16 slots of
# 2 are slower than 8 slots of 4. One or two slots hide hop and CPU latency.
""",
}


def generate(names: tuple[str, ...] = SIZING + FILLING) -> str:
    """Text of ``pp_filling.py`` with the named parts of ``policy/``."""
    parts = [_HEADER]
    if "TurnPlan" in names:
        parts.append(
            "\nfrom collections.abc import Sequence\n\nimport msgspec\n"
            if "LATENCY_HIDING_SLOTS" in names
            else ""
        )
    for name in names:
        gap = "\n" if name.isupper() else "\n\n"
        parts.append(gap + _COMMENTS.get(name, "") + _definition(name))
    return "".join(parts)


def _definition(name: str) -> str:
    module = sizing if name in SIZING else filling
    node = _node(module, name)
    lines = inspect.getsource(module).splitlines(keepends=True)
    text = "".join(lines[node.lineno - 1 : node.end_lineno])
    if isinstance(node, ast.Assign):
        return text
    assert isinstance(node, (ast.FunctionDef, ast.ClassDef))
    first = node.body[0]
    start = first.lineno - node.lineno
    end = (first.end_lineno or first.lineno) - node.lineno + 1
    lines = text.splitlines(keepends=True)
    head = "".join(lines[:start])
    if isinstance(node, ast.ClassDef):
        head = f"class {name}(msgspec.Struct, frozen=True):\n"
    return head + _docstring(name) + "".join(lines[end:])


def _docstring(name: str) -> str:
    first, *rest = _DOCSTRINGS[name].splitlines()
    body = [f'    """{first}', *(f"    {line}".rstrip() for line in rest)]
    if rest:
        body.append('    """')
    else:
        body[-1] += '"""'
    return "\n".join(body) + "\n"


def _node(module: ModuleType, name: str) -> ast.stmt:
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.Assign):
            defined = [t.id for t in node.targets if isinstance(t, ast.Name)]
        else:
            defined = [getattr(node, "name", "")]
        if name in defined:
            return node
    raise LookupError(f"{module.__name__} defines no {name}")
