"""What becomes of a lone request that KV has no room for, case by case.

Real ``Req`` objects; stock's ``retract_decode`` is emulated by what it does to the last
request (SGLang 0.5.23), because a server cannot be brought into each of these states
at will. ``test_plugin_memory.py`` has the real one.
"""

from array import array
from types import SimpleNamespace

import pytest

from sglang_ppfix.hooks import memory

schedule_batch = pytest.importorskip("sglang.srt.managers.schedule_batch")
sampling_params = pytest.importorskip("sglang.srt.sampling.sampling_params")


def request(rid: str):
    """A request with ten of forty tokens."""
    sampling = sampling_params.SamplingParams(max_new_tokens=40)
    req = schedule_batch.Req(rid, "", array("q", [1, 2, 3]), sampling)
    req.output_ids = array("q", range(10))
    return req


@pytest.fixture
def ring(monkeypatch):
    """A ring in slot 0's turn; nobody holds KV in other slots."""
    others = []
    ring = SimpleNamespace(
        balances=True,
        slot=0,
        others=others,
        occupants=SimpleNamespace(of_others=lambda _slot: list(others)),
        scheduler=SimpleNamespace(chunked_req=None),
        log=SimpleNamespace(requeued=0),
    )
    monkeypatch.setattr(memory, "current_ring", lambda: ring)
    return ring


def retract(req, asked=None):
    """A slot with one request runs out of KV."""
    req.to_finish = asked
    batch = SimpleNamespace(reqs=[req])

    def stock():
        req.to_finish = schedule_batch.FINISH_ABORT("Out of memory")
        batch.reqs = []
        return [], 0.0, [req]

    return memory.retract_decode(stock, batch, (), {})


def test_it_waits_while_another_slot_holds_kv(ring) -> None:
    """The request is requeued whole, and the estimate is over those that stay."""
    ring.others.append(request("other"))
    lone = request("lone")
    retracted, ratio, aborted = retract(lone)
    assert (retracted, aborted, lone.to_finish) == ([lone], [], None)
    assert ratio == pytest.approx((10 + 20) / 41)
    assert ring.log.requeued == 1


def test_it_waits_for_a_chunked_prompt_too(ring) -> None:
    """A prompt between two chunks holds KV, and is in no slot."""
    ring.scheduler.chunked_req = request("chunked")
    lone = request("lone")
    retracted, ratio, aborted = retract(lone)
    assert (retracted, aborted, lone.to_finish) == ([lone], [], None)
    assert ratio > 0


def test_alone_in_the_ring_it_is_aborted_as_in_stock(ring) -> None:
    """It would come back to the same pool, and again, for ever."""
    lone = request("lone")
    retracted, _ratio, aborted = retract(lone)
    assert (retracted, aborted) == ([], [lone])
    assert "Out of memory" in lone.to_finish.message
    assert ring.log.requeued == 0


def test_a_clients_abort_is_not_undone(ring) -> None:
    """Back in the queue, a request that its client gave up would run to its end."""
    ring.others.append(request("other"))
    lone = request("lone")
    asked = schedule_batch.FINISH_ABORT("Abort")
    retracted, _ratio, aborted = retract(lone, asked)
    assert (retracted, aborted) == ([], [lone])
    assert lone.to_finish is asked


def test_a_beam_group_is_aborted_as_in_stock(ring) -> None:
    """Its rows are freed already."""
    ring.others.append(request("other"))
    lone = request("lone")
    lone.beam_group = object()
    assert retract(lone)[2] == [lone]
    assert "Out of memory" in lone.to_finish.message


def test_stock_decides_under_policy_stock(ring) -> None:
    """Off in a running server is stock as well."""
    ring.balances = False
    ring.others.append(request("other"))
    lone = request("lone")
    assert retract(lone)[2] == [lone]
