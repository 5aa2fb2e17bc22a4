"""Two calls at a time on one package.

Every test names, in its docstring, the wrong change that it catches.
"""

import threading

import pytest
from patches_site import NEWEST, contents, small_package

from sglang_ppfix.patches import installed, tree
from sglang_ppfix.patches.lock import LOCK, locked


def test_a_second_call_waits(tmp_path, monkeypatch):
    """Catches a call that takes the staging of another one for that of a killed one:
    the first would fail, or swap in a tree with holes."""
    package = small_package(tmp_path / "site")
    built = threading.Event()
    go_on = threading.Event()
    exchange = tree.exchange
    ended = {}

    def slow(one, other):
        built.set()
        assert go_on.wait(20)
        return exchange(one, other)

    def call(name):
        try:
            ended[name] = installed.apply(package, NEWEST)
        except Exception as error:  # noqa: BLE001
            ended[name] = error

    monkeypatch.setattr(tree, "exchange", slow)
    first = threading.Thread(target=call, args=("first",))
    second = threading.Thread(target=call, args=("second",))
    first.start()
    assert built.wait(20)
    second.start()
    second.join(0.3)
    assert ended == {}, "the second call did not wait"
    go_on.set()
    first.join(20)
    second.join(20)
    assert isinstance(ended["first"], list)
    assert isinstance(ended["second"], installed.Done)
    installed.revert(package)
    assert not any(LOCK in path for path in contents(package))


def test_many_take_turns(tmp_path):
    """Catches a lock on a file that its last holder has removed already: two are in."""
    folder = tmp_path / "sglang"
    inside = []
    most = []

    def work():
        for _ in range(50):
            with locked(folder):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(most) == 8 * 50
    assert set(most) == {1}
    assert list(tmp_path.iterdir()) == []


def test_a_failed_call_lets_go(tmp_path):
    """Catches a lock that stays behind an error, and one that a killed call left."""
    folder = tmp_path / "sglang"
    (tmp_path / LOCK).touch()
    with pytest.raises(ValueError, match="x"), locked(folder):
        raise ValueError("x")
    assert list(tmp_path.iterdir()) == []
