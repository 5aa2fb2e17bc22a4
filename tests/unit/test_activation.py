"""The entry point: what it imports, and how it ends the server."""

import os
import subprocess
import sys

import pytest


def activate(**environ):
    """Run the entry point as SGLang does; returns the finished process."""
    code = (
        "import sys; before = set(sys.modules)\n"
        "from sglang_ppfix.plugin import activate\n"
        "activate()\n"
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
