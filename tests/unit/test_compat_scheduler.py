"""Values that live elsewhere in other releases.

The shapes are those of the releases that are named; the contract tests check that they
exist there, the lab runs that they are right.
"""

from types import SimpleNamespace as Made

import pytest

from sglang_ppfix.compat import scheduler as compat


@pytest.mark.parametrize(
    "req",
    [
        pytest.param(Made(fill_ids=[0] * 7), id="0.5.11"),
        pytest.param(Made(fill_len=7), id="0.5.13"),
        pytest.param(Made(extend_range=Made(start=3, end=7, length=4)), id="0.5.15"),
        pytest.param(Made(extend_end=7), id="0.5.22"),
    ],
)
def test_computed_tokens(req):
    """Catches a release whose chunked requests have the end of a chunk elsewhere."""
    assert compat.computed_tokens(req) == 7


@pytest.mark.parametrize(("value", "given"), [(None, None), (0, None), (8, 8)])
def test_given_cap(value, given):
    """Catches 0 taken for a cap: SGLang derives one then, as for None."""
    scheduler = Made(server_args=Made(pp_max_micro_batch_size=value))
    assert compat.given_cap(scheduler) == given


@pytest.mark.parametrize(
    ("scheduler", "args", "kwargs"),
    [
        (Made(running_batch="b"), ("single pass",), {}),  # before 0.5.16
        (Made(running_batch="x"), ("single pass", "b"), {}),
        (Made(running_batch="x"), (), {"running_batch": "b"}),
    ],
)
def test_running_batch(scheduler, args, kwargs):
    """Catches the attribute where the argument counts, or the other way round."""
    assert compat.running_batch(scheduler, args, kwargs) == "b"


@pytest.mark.parametrize("result", ["b", ("b", "running")])
def test_new_batch(result):
    """Catches a pair taken for a batch."""
    assert compat.new_batch(result) == "b"


@pytest.mark.parametrize(
    ("result", "batch"), [("b", "b"), (None, None), (Made(batch_to_run="b"), "b")]
)
def test_batch_to_run(result, batch):
    """Catches a plan taken for a batch, and None for a plan."""
    assert compat.batch_to_run(result) == batch


@pytest.mark.parametrize(
    ("scheduler", "args", "kwargs"),
    [
        (Made(cur_batch="b"), (0, "proxy", "metadata", "queue"), {}),  # before 0.5.16
        (Made(), (0, "b", "proxy", "metadata", "queue"), {}),
        (Made(), (0,), {"cur_batch": "b", "pp_proxy_tensors": "proxy"}),
    ],
)
def test_launched_batch(scheduler, args, kwargs):
    """Catches proxy tensors taken for the batch."""
    assert compat.launched_batch(scheduler, args, kwargs) == "b"


@pytest.mark.parametrize(
    "adder",
    [
        Made(rem_total_token_offset=1.0),  # before 0.5.21
        Made(memory_budget=Made(total_offset=1.0), rem_total_token_offset=1.0),
    ],
)
def test_add_future_tokens(adder):
    """Catches tokens that are reserved where nobody looks."""
    compat.add_future_tokens(adder, 5.0)
    home = getattr(adder, "memory_budget", None)
    found = home.total_offset if home else adder.rem_total_token_offset
    assert found == 6.0


def test_received_tensors():
    """Catches a pair with an event taken for the dict of tensors."""
    tensors = {"hidden_states": 1}
    assert compat.received_tensors(tensors) is tensors
    assert compat.received_tensors((tensors, "event")) is tensors
