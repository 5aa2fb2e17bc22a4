"""``sglang-ppfix lab`` from the outside: what it writes, and how it ends."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sglang_ppfix.lab.config import LabConfig
from sglang_ppfix.lab.errors import LabError
from sglang_ppfix.lab.profile_file import stage_profile
from sglang_ppfix.lab.server import LabServer

VERB = [sys.executable, "-m", "sglang_ppfix", "lab", "--pp", "2"]
START_LIMIT_S = 300


@pytest.fixture(autouse=True)
def _alone(server_pool) -> None:
    """The verb starts servers of its own."""
    server_pool.stop()


def test_the_verb_writes_what_it_promises(tmp_path) -> None:
    """Both arms, every file, and the sentence, from one command."""
    pytest.importorskip("matplotlib")
    files = {name: tmp_path / name for name in ("json", "plot", "trace")}
    options = [f"--{name}={path}" for name, path in files.items()]
    done = subprocess.run(
        [
            *VERB,
            "--stage-ms=8+2b",
            "--clients=1,4",
            "--output-tokens=6",
            "--max-running-requests=4",
            f"--keep-logs={tmp_path / 'logs'}",
            *options,
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows = json.loads(files["json"].read_text())["rows"]
    assert [row["clients"] for row in rows] == [1, 4]
    assert all(row["outputs_identical"] for row in rows)
    assert all(row["stock_tok_s"] > 0 and row["plugin_tok_s"] > 0 for row in rows)
    assert not any(
        row[arm]["wrong_tokens"] for row in rows for arm in ("stock", "plugin")
    )
    assert rows[1]["stock"]["largest_micro_batch"] == 2  # 4 rows over 2 stages
    assert files["plot"].read_bytes().startswith(b"\x89PNG")
    assert json.loads(files["trace"].read_text())["traceEvents"]
    assert "Every token of 10 outputs is right" in done.stdout
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == [
        "plugin-0",
        "stock-0",
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_is_left_behind(tmp_path, number) -> None:
    """Interrupted while schedulers start, the worst moment; even killed outright."""
    verb = subprocess.Popen(
        [*VERB, f"--keep-logs={tmp_path}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    mark = f"{tmp_path}/stock-0"
    try:
        assert wait_for(lambda: len(processes(mark)) >= 3, START_LIMIT_S)
        os.kill(verb.pid, number)
        status = verb.wait(60)
        assert status == (-number if number == signal.SIGKILL else 130)
        assert wait_for(lambda: not processes(mark), 60)
    finally:
        verb.kill()


def test_a_server_that_dies_is_named_with_its_reason(tmp_path) -> None:
    """The reason must be the log's, not a time limit or ``status 1``."""
    config = LabConfig(
        stage_profile("5", 2), extra_args=("--attention-backend", "no_such_backend")
    )
    server = LabServer(config, tmp_path)
    with pytest.raises(LabError, match="no_such_backend"):
        server.start()


def processes(mark: str) -> list[int]:
    """Live processes whose environment names ``mark`` (the lab's device file)."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes()
            state = (folder / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if state != "Z" and mark.encode() in environment:
            found.append(int(folder.name))
    return found


def wait_for(condition, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.1)
    return False


def test_a_port_taken_in_the_meantime_is_named(tmp_path) -> None:
    """SGLang itself waits ten minutes then; its line in the log may change."""
    server = LabServer(LabConfig(stage_profile("4", 2)), tmp_path)
    with socket.socket() as holder, ThreadPoolExecutor() as thread:
        starting = thread.submit(server.start)
        while not server.url:
            time.sleep(0.01)
        holder.bind(("127.0.0.1", int(server.url.rsplit(":", 1)[1])))
        holder.listen()
        with pytest.raises(LabError, match=r"can't listen: .*address already in use"):
            starting.result(START_LIMIT_S)
