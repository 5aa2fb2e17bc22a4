"""Loads of every kind on a ring with async depth, chunks and a short KV pool."""

from dataclasses import replace

import pytest

from sglang_ppfix.lab.client import run_load
from sglang_ppfix.lab.config import LabConfig
from sglang_ppfix.lab.experiment import run_on
from sglang_ppfix.lab.load import Lengths, Load, PlannedRequest, plan_load
from sglang_ppfix.lab.profile_file import stage_profile

CONFIG = LabConfig(
    stage_profile("5+2b", 2),
    max_running_requests=8,
    async_depth=2,
    chunked_prefill_size=32,
    kv_tokens=700,
    env={"SGLANG_PLUGINS": "ppfix_lab"},
    extra_args=("--enable-mixed-chunk",),
)
PROMPT, OUTPUT = Lengths(2, 90), Lengths(1, 24)


@pytest.mark.parametrize("arrival", ["burst", "closed", "poisson"])
def test_every_token_of_every_arrival_is_right(lab_server, arrival) -> None:
    """Chunks, mixed batches and slots beyond the stages: a wrong history would show."""
    load = plan_load(arrival, 8, PROMPT, OUTPUT, seed=2, requests=16, rate_per_s=10)
    run = run_on(lab_server(CONFIG), load)
    assert (run.measurement.wrong_tokens, run.measurement.errors) == ((), ())
    assert all(len(r.output) == r.request.output_tokens for r in run.results)
    modes = {forward.mode for forward in run.traces[0]}
    assert {"decode", "prefill"} <= modes
    chunked = [r for r in run.results if len(r.request.prompt) > 32]
    assert chunked
    assert max(forward.tokens for forward in run.traces[0]) <= 32 + 8


def test_streamed_clients_see_the_first_token_early(lab_server) -> None:
    """A first-token time taken from the end of the answer would be too late."""
    load = plan_load("closed", 4, PROMPT, Lengths(20, 20), seed=3)
    run = run_on(lab_server(CONFIG), load, stream=True)
    assert (run.measurement.wrong_tokens, run.measurement.errors) == ((), ())
    for result in run.results:
        assert result.first_token is not None
        assert result.sent < result.first_token < result.finished


@pytest.mark.parametrize("kind", ["disconnect", "abort_request"])
def test_aborted_requests_end_and_the_others_are_right(lab_server, kind) -> None:
    """An abort that took another request's place, or never ended, would show."""
    load = plan_load("closed", 8, PROMPT, Lengths(60, 60), seed=4)
    requests = tuple(
        replace(request, abort_after_s=0.4, abort=kind) if number % 2 else request
        for number, request in enumerate(load.requests)
    )
    run = run_on(lab_server(CONFIG), replace(load, requests=requests))
    assert (run.measurement.wrong_tokens, run.measurement.errors) == ((), ())
    ends = [result.finish for result in run.results]
    assert ends[0::2] == ["length"] * 4
    assert ends[1::2] == ["abort" if kind == "abort_request" else kind] * 4


def test_a_part_of_a_burst_can_be_aborted(lab_server) -> None:
    """The rest of the call must still be answered."""
    requests = tuple(
        PlannedRequest(
            f"b{n}", (9, 8, 7), 80, abort_after_s=0.5 if n == 1 else None,
            abort="abort_request",
        )
        for n in range(4)
    )  # fmt: skip
    run = run_on(lab_server(CONFIG), Load("burst", 4, requests))
    assert [r.finish for r in run.results] == ["length", "abort", "length", "length"]
    assert (run.measurement.wrong_tokens, run.measurement.errors) == ((), ())
    assert run.results[1].finished < run.results[0].finished


def test_penalised_and_sampled_requests_are_checked(lab_server) -> None:
    """An oracle that did not know penalties would object to right outputs."""
    load = plan_load("closed", 8, PROMPT, OUTPUT, seed=5)
    sampling = (
        {"temperature": 0, "frequency_penalty": 0.5, "presence_penalty": 0.3},
        {"temperature": 1.0},
    )
    requests = tuple(
        replace(request, sampling=sampling[number % 2])
        for number, request in enumerate(load.requests)
    )
    run = run_on(lab_server(CONFIG), replace(load, requests=requests))
    assert (run.measurement.wrong_tokens, run.measurement.errors) == ((), ())


def test_a_request_that_is_refused_is_an_error_not_an_exception(lab_server) -> None:
    """A client that raised would lose the results of all other requests."""
    server = lab_server(CONFIG)
    requests = (
        PlannedRequest("long", tuple([9] * 5000), 4),
        PlannedRequest("good", (9, 8), 4),
    )
    long, good = run_load(server.url, Load("closed", 2, requests))
    assert long.error is not None
    assert "HTTP 400" in long.error
    assert (good.error, good.finish) == (None, "length")


def test_what_is_not_answered_in_time_is_given_up(lab_server) -> None:
    """A server that hangs must not hang the lab."""
    server = lab_server(CONFIG)
    slow = Load("closed", 1, (PlannedRequest("slow", (9, 8), 300),))
    (result,) = run_load(server.url, slow, timeout_s=0.5)
    assert result.error == "no answer after 0 s"
    server.wait_idle()
