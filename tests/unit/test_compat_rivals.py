"""Methods that another plugin took, in a running process."""

import sys
import types
from enum import Enum
from pathlib import Path
from types import SimpleNamespace as Made

import pytest

from sglang_ppfix.compat import rivals
from sglang_ppfix.patching import Hook, install, verify


class Kind(Enum):
    AROUND = "around"
    REPLACE = "replace"


@pytest.fixture
def hook(monkeypatch, tmp_path):
    """A hook on a method whose module lies under ``tmp_path``."""
    path = tmp_path / "fake_scheduler.py"
    path.write_text("class Scheduler:\n    def turn(self): return 1\n")
    module = types.ModuleType("fake_scheduler")
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, "fake_scheduler", module)
    return Hook("fake_scheduler", "Scheduler.turn", lambda wrapped, *_: wrapped(), [""])


@pytest.fixture
def registry(monkeypatch):
    """Hooks of SGLang's registry, as ``HookRegistry._hooks`` holds them."""
    table = {}
    module = types.ModuleType(rivals._REGISTRY)
    module.HookRegistry = Made(_hooks=table)
    monkeypatch.setitem(sys.modules, rivals._REGISTRY, module)
    return table


@pytest.mark.parametrize("target", ["Scheduler.turn", "Scheduler"])
def test_replaced_by_the_registry(hook, registry, target):
    """Catches what the mark misses: a REPLACE hook, of a method or its class, keeps
    ``__wrapped__`` and looks like a wrapper around ours."""
    source = Made(plugin_name="acme", dist_name="acme-dist")
    registry[f"fake_scheduler.{target}"] = [(Kind.REPLACE, None, source)]
    (line,) = rivals.replaced([hook])
    assert "fake_scheduler.Scheduler.turn" in line
    assert "acme" in line


def test_other_hooks_are_no_replacement(hook, registry):
    """Catches an alarm about a hook that goes around ours."""
    registry["fake_scheduler.Scheduler.turn"] = [(Kind.AROUND, None, None)]
    assert list(rivals.replaced([hook])) == []


def test_no_registry(hook):
    """Catches an exception where SGLang has no plugin framework."""
    assert list(rivals.replaced([hook])) == []


def test_foreign_function(hook, tmp_path):
    """Catches a method that was assigned before ours: we would wrap the other's."""
    assert list(rivals.foreign([hook], tmp_path)) == []
    sys.modules["fake_scheduler"].Scheduler.turn = lambda self: 2
    (line,) = rivals.foreign([hook], tmp_path)
    assert line == f"fake_scheduler.Scheduler.turn was replaced by {__name__}"


def test_our_own_wrapper_is_not_foreign(hook, tmp_path):
    """Catches a second look that takes our wrapper for a replacement."""
    install([hook])
    verify([hook])
    assert list(rivals.foreign([hook], tmp_path)) == []
    assert list(rivals.foreign([hook], Path("/elsewhere"))) != []
