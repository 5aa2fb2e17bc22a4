"""The rule in the diffs is the rule of policy/: plugin and diffs cannot part."""

import ast
import inspect
import random
from types import ModuleType

import msgspec
import pytest

from sglang_ppfix import policy
from sglang_ppfix.patches.folder import releases, series
from sglang_ppfix.patches.generate import FILLING, MODULE, SIZING, generate
from sglang_ppfix.patches.strict import apply
from sglang_ppfix.policy import filling, sizing

PATH = f"sglang/{MODULE}"


def carried(release):
    """``pp_filling.py`` out of the diffs of a release, which add it as a new file."""
    parts = [
        (mail.path.name, file)
        for mail in series(release)
        for file in mail.diff.split("diff --git ")
        if file.startswith(f"a/{PATH} ")
    ]
    diffs = [(name, f"diff --git {file}") for name, file in parts]
    return apply(diffs, lambda path: None)[PATH]


def functions(source):
    """Name to syntax tree of every function, without docstrings and positions."""
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            assert ast.get_docstring(node)
            node.body = node.body[1:]
            found[node.name] = ast.dump(node)
    return found


@pytest.mark.parametrize("release", releases(), ids=str)
def test_the_diffs_carry_the_generated_module(release):
    """Red when policy/ changed and ``tools/make_patches.py refresh`` was not run."""
    assert carried(release) == generate()


def test_syntax_trees_are_equal():
    """Red when the generator changes anything but docstrings."""
    made = functions(generate())
    ours = functions(inspect.getsource(filling)) | functions(inspect.getsource(sizing))
    assert made == {name: ours[name] for name in made}
    assert set(made) == {n for n in SIZING + FILLING if n.islower()}


def test_the_container_has_the_same_fields():
    """Red when a field is added to the plan on one side only."""
    module = executed(generate())
    assert module.TurnPlan.__struct_fields__ == policy.TurnPlan._fields


def test_the_first_diff_carries_the_sizing_only():
    """Red when the cap's diff brings code that nothing calls yet."""
    assert set(functions(generate(SIZING))) == {"target_slots", "derive_cap"}


def executed(source):
    module = ModuleType("pp_filling")
    exec(compile(source, PATH, "exec"), module.__dict__)
    return module


def test_a_million_random_states():
    """Red when the diffs' rule and the plugin's give two answers to one state."""
    theirs = executed(carried(releases()[0]))
    draw = random.Random(6).random
    for _ in range(1_000_000):
        length = 1 + int(draw() * 12)
        top = (2, 5, 41)[int(draw() * 3)]
        occupancy = [int(draw() * top) for _ in range(length)]
        rows = 1 + int(draw() * 128)
        slots, cap = 1 + int(draw() * length), 1 + int(draw() * rows)
        state = (occupancy, int(draw() * 65), rows, slots, cap)
        ours = policy.plan_turn(*state)
        plan = theirs.plan_turn(*state)
        assert msgspec.structs.astuple(plan) == ours, state
        prompt = (1 + int(draw() * 99), int(draw() * 9), 1 + int(draw() * 9))
        more = policy.turns_more(*prompt)
        assert theirs.turns_more(*prompt) == more, prompt
        slot, passed = int(draw() * length), int(draw() * 2 * length)
        start = (slot, more, cap)
        starts = policy.good_starts(occupancy, ours, *start)
        assert theirs.good_starts(occupancy, plan, *start) == starts, (state, start)
        allowed = policy.may_start(occupancy, ours, slot, starts, passed)
        answer = theirs.may_start(occupancy, plan, slot, starts, passed)
        assert answer is allowed, (state, start, passed)
        tokens = (int(draw() * 5000), occupancy)
        assert theirs.token_share(*tokens) == policy.token_share(*tokens), tokens


def test_sizing_on_every_shape():
    """Red when cap or target slots differ anywhere in the range that servers use."""
    theirs = executed(carried(releases()[0]))
    for pp_size in range(1, 17):
        for depth in range(9):
            for requested in (None, 1, pp_size, 64):
                shape = (pp_size, depth, requested)
                slots = policy.target_slots(*shape)
                assert theirs.target_slots(*shape) == slots
                for rows in (1, 2, 7, 32, 60, 2048):
                    assert theirs.derive_cap(rows, slots) == policy.derive_cap(
                        rows, slots
                    )
