"""Patching, in the orderings of dd-trace-py's PatchTestCase, each in a subprocess.

Hooks are global to a process, so every ordering gets one of its own.
"""

import subprocess
import sys
import textwrap

import pytest

TARGET = """
class Mixin:
    def inherited(self, a, b=1):
        return ("inherited", a, b)

class Scheduler(Mixin):
    def own(self, a):
        return ("own", a)
"""

PRELUDE = """
import inspect, sys
from sglang_ppfix import patching
from sglang_ppfix.patching import Hook, PatchError

calls = []

def wrapper(wrapped, instance, args, kwargs):
    calls.append(type(instance).__name__)
    return wrapped(*args, **kwargs)

HOOKS = [
    Hook("target", "Scheduler.own", wrapper, ["a"]),
    Hook("target", "Scheduler.inherited", wrapper, ["a, b"]),
]

def use():
    import target
    calls.clear()
    scheduler = target.Scheduler()
    assert scheduler.own(1) == ("own", 1)
    assert scheduler.inherited(2, b=3) == ("inherited", 2, 3)
    return len(calls)

def stock():
    import target
    return "inherited" not in vars(target.Scheduler) and use() == 0
"""


def run(tmp_path, body):
    """Run a script beside the module ``target``; returns its stderr."""
    (tmp_path / "target.py").write_text(TARGET)
    script = tmp_path / "script.py"
    script.write_text(PRELUDE + textwrap.dedent(body))
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("import target; patching.install(HOOKS)", id="import, patch"),
        pytest.param("patching.install(HOOKS)", id="patch, import"),
        pytest.param("patching.install(HOOKS); patching.install(HOOKS)", id="twice"),
        pytest.param(
            "patching.install(HOOKS); patching.undo(HOOKS); patching.install(HOOKS)",
            id="patch, unpatch, patch",
        ),
    ],
)
def test_hooked_once(tmp_path, body):
    """Catches a hook that is missing, or that runs twice."""
    run(tmp_path, f"{body}\nassert use() == 2\npatching.verify(HOOKS)\n")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("patching.undo(HOOKS)", id="unpatch"),
        pytest.param(
            "patching.install(HOOKS); patching.undo(HOOKS)", id="patch, unpatch"
        ),
        pytest.param(
            "patching.install(HOOKS); patching.undo(HOOKS); patching.undo(HOOKS)",
            id="unpatch twice",
        ),
    ],
)
def test_stock_again(tmp_path, body):
    """Catches an undo that leaves a wrapper, or that pins an inherited method."""
    run(tmp_path, f"{body}\nassert stock()\n")


def test_undo_before_import_does_not_import(tmp_path):
    """Catches an undo that loads SGLang in a process that never needed it."""
    run(tmp_path, "patching.undo(HOOKS)\nassert 'target' not in sys.modules\n")


def test_a_missing_target_changes_nothing(tmp_path):
    """Catches half-patching: the second probe fails, the first must not be hooked."""
    run(
        tmp_path,
        """
        bad = [HOOKS[0], Hook("target", "Scheduler.gone", wrapper, [""])]
        try:
            patching.install(bad)
        except PatchError as error:
            assert str(error) == "target.Scheduler.gone does not exist", error
        else:
            raise AssertionError
        assert stock()
        """,
    )


def test_changed_parameters_are_named(tmp_path):
    """Catches a hook on a method whose arguments moved."""
    run(
        tmp_path,
        """
        try:
            patching.install([Hook("target", "Scheduler.own", wrapper, ["a, b"])])
        except PatchError as error:
            assert "target.Scheduler.own takes (a), expected (a, b)" in str(error)
        else:
            raise AssertionError
        assert stock()
        """,
    )


def test_a_replaced_method_is_noticed(tmp_path):
    """Catches a plugin that believes in its registration."""
    run(
        tmp_path,
        """
        import target
        patching.install(HOOKS)
        def own(self, a):
            return ("own", a)
        target.Scheduler.own = own
        try:
            patching.verify(HOOKS)
        except PatchError as error:
            assert "target.Scheduler.own was replaced by __main__" in str(error)
        else:
            raise AssertionError
        """,
    )


def test_a_wrapper_on_top_is_no_replacement(tmp_path):
    """Catches a verify that refuses SGLang's own AROUND hooks of other plugins, and
    an undo that would tear them out."""
    run(
        tmp_path,
        """
        import functools, target
        patching.install(HOOKS)
        original = target.Scheduler.own
        @functools.wraps(original)
        def around(*args, **kwargs):
            return original(*args, **kwargs)
        target.Scheduler.own = around
        patching.verify(HOOKS)
        assert use() == 2
        assert patching.undo(HOOKS) == ["target.Scheduler.own"]
        """,
    )
