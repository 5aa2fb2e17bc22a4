"""Two nodes on loopback that do not run the same: the server ends, and says which."""

import os
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from helpers_plugin import plugin_config

from sglang_ppfix.lab.launch import HOST, command, environment, write_model
from sglang_ppfix.lab.ports import free_port
from sglang_ppfix.lab.processes import end_group, start_group
from sglang_ppfix.lab.rank import DeviceFile

PP_SIZE = 2
# Two starts of half a minute, and half a minute of waiting for the rank that is not
# there; a hang is minutes.
PATIENCE_S = 240.0


def start_node(
    folder: Path, node: int, port: int, env: dict[str, str]
) -> "subprocess.Popen[bytes]":
    """One of two nodes, each with one stage."""
    config = plugin_config(
        PP_SIZE,
        env=env,
        extra_args=(
            *("--nnodes", "2", "--node-rank", str(node)),
            *("--dist-init-addr", f"{HOST}:{port}"),
        ),
    )
    working_folder = folder / "cwd"
    working_folder.mkdir(parents=True)
    write_model(config, folder / "model")
    DeviceFile(config.profile).write(folder / "device.json")
    return start_group(
        command(config, free_port(HOST, None), folder / "model"),
        working_folder,
        environment(config, folder / "device.json"),
        folder / "server.log",
    )


@pytest.mark.parametrize(
    ("envs", "named"),
    [
        (
            ({"SGLANG_PPFIX": "0"}, {}),
            "PP0 TP0 does not run the plugin: set SGLANG_PPFIX on every node",
        ),
        (
            ({}, {"SGLANG_PPFIX_SLOTS": "1"}),
            "has slots 1, here it is None",
        ),
    ],
    ids=["first-off", "slots-differ"],
)
def test_nodes_that_do_not_run_the_same_end(server_pool, tmp_path, envs, named) -> None:
    """Without the agreement both nodes serve until the first burst hangs the ring."""
    server_pool.stop()
    port = free_port(HOST, None)
    nodes = []
    try:
        for node, env in enumerate(envs):
            nodes.append(start_node(tmp_path / f"node{node}", node, port, env))
        deadline = time.monotonic() + PATIENCE_S
        while any(node.poll() is None for node in nodes):
            assert time.monotonic() < deadline, logs(tmp_path)
            time.sleep(0.2)
        for node in nodes:
            assert node.returncode != 0
            wait_until_empty(node.pid)
    finally:
        for node in nodes:
            end_group(node)
    assert named in logs(tmp_path)
    assert "the ranks do not agree" in logs(tmp_path)


def logs(folder: Path) -> str:
    """What both nodes wrote."""
    paths = sorted(folder.glob("node*/server.log"))
    return "\n".join(path.read_text(errors="replace") for path in paths)


def wait_until_empty(group: int) -> None:
    """Until no process of a group lives; SGLang ends its children itself."""
    deadline = time.monotonic() + 30
    while left := [
        process for process in psutil.process_iter() if lives(process, group)
    ]:
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


def lives(process: psutil.Process, group: int) -> bool:
    """Whether a process of ``group`` still runs (a zombie does not)."""
    try:
        in_group = os.getpgid(process.pid) == group
        return in_group and process.status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.NoSuchProcess):
        return False
