"""The lab's entry point: nothing while it is off, one line where it cannot work."""

import subprocess
import sys
from types import ModuleType

import pytest

from sglang_ppfix.lab.wrapping import wrap_target


def test_off_imports_the_standard_library_only() -> None:
    """Every SGLang process imports the entry module, in the lab or not."""
    code = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "from sglang_ppfix.lab.plugin import activate\n"
        "activate()\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(new - set(sys.stdlib_module_names)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={}
    )
    assert done.stdout.strip() == "['sglang_ppfix']"


def test_a_missing_target_ends_the_process_with_its_name() -> None:
    """``load_plugins()`` swallows exceptions: only an exit cannot be overlooked."""
    module = ModuleType("sglang.srt.managers.scheduler")
    module.Scheduler = type("Scheduler", (), {})  # type: ignore[attr-defined]
    with pytest.raises(SystemExit) as end:
        wrap_target(module, "Scheduler._pp_launch_batch", "mb_id", lambda *a: None)
    assert "sglang.srt.managers.scheduler.Scheduler._pp_launch_batch" in str(end.value)
