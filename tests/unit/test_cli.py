"""The command line as a shell uses it."""

import subprocess
import sys
from pathlib import Path

LOG = Path(__file__).parents[1] / "data" / "logs" / "lab" / "even-8.log.gz"


def test_a_reader_that_has_enough_sees_no_traceback() -> None:
    """Catches ``sglang-ppfix ... | head`` that ends in a BrokenPipeError."""
    command = [sys.executable, "-m", "sglang_ppfix", "diagnose", str(LOG)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        error = process.stderr.read().decode()
    assert "Traceback" not in error, error
    assert "BrokenPipe" not in error, error
