"""The emulated pipeline under real SGLang behaves as one of GPUs would."""

import itertools

import pytest

from sglang_ppfix.lab.config import LabConfig
from sglang_ppfix.lab.experiment import Run, run_on
from sglang_ppfix.lab.load import Lengths, plan_load
from sglang_ppfix.lab.profile_file import stage_profile

HOP_MS = 4
PROFILE = stage_profile("20+5b", 3, prefill="25+0.5n", hop_ms=HOP_MS, head_ms=6)
# Only the lab's own plugin is loaded: this is SGLang and nothing else.
CONFIG = LabConfig(
    PROFILE, max_running_requests=12, env={"SGLANG_PLUGINS": "ppfix_lab"}
)
TOKENS = 12
CLOCK = 2e-6
"""Traces hold microseconds."""


@pytest.fixture(scope="module")
def run(lab_server) -> Run:
    """A closed loop that fills several slots, with prompts of all lengths."""
    load = plan_load(
        "closed", 9, Lengths(1, 60), Lengths(TOKENS, TOKENS), seed=1, requests=18
    )
    return run_on(lab_server(CONFIG), load)


def test_every_token_is_right(run) -> None:
    """A KV slot, row, position or rank that the hooks mixed up would change a token."""
    assert run.measurement.wrong_tokens == ()
    assert run.measurement.errors == ()
    assert {len(result.output) for result in run.results} == {TOKENS}


def test_all_stages_ran_the_same_micro_batches(run) -> None:
    """A trace that lost or repeated a forward, or another slot number, would show."""
    seen = [[(f.slot, f.mode, f.tokens, f.rids) for f in trace] for trace in run.traces]
    assert len(seen) == len(PROFILE.stages)
    assert all(trace == seen[0] for trace in seen)
    forwards = {rid: 0 for rid in (r.request.rid for r in run.results)}
    for _, _, _, rids in seen[0]:
        for rid in rids:
            forwards[rid] += 1
    assert set(forwards.values()) == {TOKENS}


def test_forwards_take_the_time_of_their_stage(run) -> None:
    """Prefill taken for decode, or the head on a wrong stage, would show here."""
    for trace, stage in zip(run.traces, PROFILE.stages, strict=True):
        for forward in trace:
            if forward.mode == "decode":
                expected = stage.decode(forward.requests)
            else:
                expected = stage.prefill(forward.tokens)
            lasted = (forward.end - forward.start) * 1e3
            assert lasted == pytest.approx(expected, abs=0.01)


def test_no_stage_runs_two_forwards_at_once(run) -> None:
    """Two kernels of one device would overlap if streams did not share it."""
    for trace in run.traces:
        for earlier, later in itertools.pairwise(trace):
            assert later.start >= earlier.end - CLOCK


def test_a_stage_waits_for_the_one_before_it_and_the_hop(run) -> None:
    """A message without the time of its data would let stages run ahead."""
    for before, after in itertools.pairwise(run.traces):
        for sent, received in zip(before, after, strict=True):
            assert received.start >= sent.end + HOP_MS / 1e3 - CLOCK


def test_the_next_step_waits_for_the_token(run) -> None:
    """Rank 0 must not decode a slot before the last stage made its tokens."""
    made: dict[int, float] = {}
    for first, last in zip(run.traces[0], run.traces[-1], strict=True):
        if first.mode == "decode":
            assert first.launched >= made[first.slot] + HOP_MS / 1e3 - CLOCK
        made[first.slot] = last.end


def test_launches_overlap_with_the_device(run) -> None:
    """A forward that slept would be over when the next one is launched."""
    for trace in run.traces:
        assert any(
            later.launched < earlier.end for earlier, later in itertools.pairwise(trace)
        )
