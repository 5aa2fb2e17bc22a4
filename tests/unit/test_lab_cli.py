"""Bad options of ``sglang-ppfix lab`` get one line, before any server starts."""

import importlib.util
import os

import pytest

from sglang_ppfix.cli import main
from sglang_ppfix.lab import machine
from sglang_ppfix.lab.config import LabConfig
from sglang_ppfix.lab.errors import LabError
from sglang_ppfix.lab.machine import check_machine
from sglang_ppfix.lab.profile_file import stage_profile
from sglang_ppfix.lab.server import LabServer


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--stage-ms", "fast"], "--stage-ms 'fast'"),
        (["--prefill-ms", "3b"], "--prefill-ms '3b'"),
        (["--stage-factors", "1,1"], "--stage-factors [1.0, 1.0]: need 4"),
        (["--pp", "1"], "pp_size 1"),
        (["--max-running-requests", "0"], "max_running_requests 0"),
        (["--async-depth", "-1"], "async_depth -1"),
        (["--cap", "0"], "cap 0"),
        (["--clients", "0"], "clients [0]"),
        (["--output-tokens", "none"], "--output-tokens 'none'"),
        (["--prompt-tokens", "9-3"], "--prompt-tokens '9-3'"),
        (["--kv-tokens", "50"], "kv_tokens 50"),
        (["--arms", "stock,best"], "arm 'best'"),
        (["--env", "NAME"], "--env 'NAME'"),
        (["--pairs", "0"], "pairs [0]"),
        (["--stream"], "--stream"),
        (["--json", "/no/such/folder/x.json"], "/no/such/folder/x.json"),
    ],
)
def test_bad_options_get_one_line(options, says, capsys, monkeypatch) -> None:
    """A traceback, several lines, or a server that starts first would fail here."""
    monkeypatch.setattr(LabServer, "start", lambda self: pytest.fail("started"))
    assert main(["lab", *options]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("sglang-ppfix lab: ")
    assert says in lines[0]


def test_numbers_that_are_none_are_named(capsys) -> None:
    """argparse alone would say ``invalid _integers value``."""
    with pytest.raises(SystemExit):
        main(["lab", "--clients", "1,x"])
    assert (
        "--clients: '1,x': write whole numbers as \"1,4,8\"" in capsys.readouterr().err
    )


def test_a_missing_sglang_is_named(monkeypatch, tmp_path) -> None:
    """The command to install it must be there, not a ModuleNotFoundError."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    server = LabServer(LabConfig(stage_profile("40", 2)), tmp_path)
    with pytest.raises(LabError, match="sglang is not installed"):
        server.start()


def test_a_small_machine_is_named(monkeypatch) -> None:
    """The lab must not start what it cannot finish."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    with pytest.raises(LabError, match="needs 2 CPU cores, this process may use 1"):
        check_machine(4)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr(machine, "available_gib", lambda: 1.5)
    with pytest.raises(LabError, match=r"1\.5 GiB are free"):
        check_machine(8)
