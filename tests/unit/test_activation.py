"""The entry point: what it imports, and how it ends the server."""

import os
import subprocess
import sys
import types

import pytest

from sglang_ppfix import patching
from sglang_ppfix.activation import _Installer
from sglang_ppfix.settings import Mode, Settings


def activate(missing=(), **environ):
    """Run the entry point as SGLang does; returns the finished process.

    Like ``load_plugins()``, it swallows every ``Exception``. What is ``missing``
    cannot be imported.
    """
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({tuple(missing)!r}))\n"
        "before = set(sys.modules)\n"
        "from sglang_ppfix.plugin import activate\n"
        "try: activate()\n"
        "except Exception: print('swallowed')\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(new - set(sys.stdlib_module_names)))\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("flag", ["", "0", " "])
def test_off_imports_the_standard_library_only(flag):
    """Catches an import that every SGLang process would pay for, flag or no flag."""
    done = activate(SGLANG_PPFIX=flag)
    assert done.stdout.strip() == "['sglang_ppfix']"
    assert done.stderr == ""


def test_a_bad_flag_ends_the_process_in_one_line():
    """Catches an exception that load_plugins() would swallow."""
    done = activate(SGLANG_PPFIX="maybe")
    assert done.returncode == 1
    assert done.stderr == (
        "sglang-ppfix: SGLANG_PPFIX='maybe' is not allowed; "
        "allowed: 0, 1, auto, observe\n"
    )


@pytest.mark.parametrize("missing", ["wrapt", "packaging", "packaging.version"])
@pytest.mark.parametrize("flag", ["1", "observe"])
def test_a_missing_dependency_ends_the_process_in_one_line(missing, flag):
    """Catches an import outside of the guard: load_plugins() would swallow the error,
    and the server would run stock although it was told not to."""
    done = activate([missing], SGLANG_PPFIX=flag)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert missing in line
    assert f"the server ends because SGLANG_PPFIX={flag}" in line


@pytest.mark.parametrize("flag", ["auto", "AUTO"])
def test_auto_runs_stock_without_a_dependency(flag):
    """Catches ``auto`` that ends the server, or that says nothing."""
    done = activate(["wrapt"], SGLANG_PPFIX=flag)
    assert done.returncode == 0
    assert "swallowed" not in done.stdout
    (line,) = done.stderr.splitlines()
    assert "wrapt" in line
    assert line.endswith("SGLang runs unchanged")


@pytest.mark.parametrize("flag", ["", "0"])
def test_off_needs_no_dependency(flag):
    """Catches a plugin that is off and still ends a server, or speaks."""
    done = activate(["wrapt", "packaging"], SGLANG_PPFIX=flag)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def installer(monkeypatch):
    """An installer in mode ``auto`` with two targets, the first of them missing."""

    class Target:
        def method(self):
            return "stock"

    module = types.ModuleType("ppfix_target")
    module.Target = Target
    monkeypatch.setitem(sys.modules, module.__name__, module)
    made = _Installer(Settings(mode=Mode.AUTO))
    made.hooks = [
        patching.Hook(module.__name__, "Target.gone", lambda *_: "hooked", [""]),
        patching.Hook(module.__name__, "Target.method", lambda *_: "hooked", [""]),
    ]
    made.target = Target
    return made


def test_a_missing_target_does_not_keep_the_others_hooked(installer, capsys):
    """Catches ``SGLang runs unchanged`` said over a hook that is still there, and an
    exception on the way that would end a server in mode ``auto``."""
    patching.install(installer.hooks[1:])
    assert installer.target().method() == "hooked"
    installer._give_up(["drifted"])
    assert installer.target().method() == "stock"
    assert capsys.readouterr().err.strip().endswith("SGLang runs unchanged")


def test_an_unexpected_error_leaves_no_hook(installer, monkeypatch, capsys):
    """Catches a way out of the installation that does not undo it: load_plugins()
    would swallow the error, and half of the hooks would act."""
    del installer.hooks[0]
    monkeypatch.setattr(installer, "_drifts", lambda package: ())
    monkeypatch.setattr("sglang_ppfix.compat.rivals.foreign", lambda *_: ())

    def verify(hooks):
        raise AttributeError("two\nlines")

    monkeypatch.setattr(patching, "verify", verify)
    module = types.ModuleType("sglang.srt.managers.scheduler")
    module.__file__ = "/sglang/srt/managers/scheduler.py"
    installer(module)
    assert installer.target().method() == "stock"
    (line,) = capsys.readouterr().err.splitlines()
    assert "AttributeError: two lines" in line
