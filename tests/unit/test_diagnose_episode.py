"""What a busy period knows of its requests: bursts, stamps, retractions."""

from pathlib import Path

import diagnose_lines as lines
import pytest

from sglang_ppfix.observe.diagnosis_config import Hints
from sglang_ppfix.observe.diagnosis_logs import diagnose_logs
from sglang_ppfix.observe.log_episode import Episode
from sglang_ppfix.observe.log_windows import Window


def line(episode: Episode, held: int, seconds: float, tok_s: float) -> Window:
    """A decode line whose stamp is of a whole second."""
    window = Window()
    episode.balance(window, held, seconds, True, tok_s, most=1e6)
    return window


def burst(slots: int, size: int, prompt: int) -> Episode:
    """``slots`` slots that each took in ``size`` requests, and their first line."""
    episode = Episode()
    for _ in range(slots):
        episode.admit(size, size * prompt, 0)
        episode.seat(0, size)
    line(episode, slots * size * (prompt + 2), 0.0, 10.0)
    return episode


@pytest.mark.parametrize("phase", [0.0, 0.3, 0.99])
@pytest.mark.parametrize(
    "rates", [(120.0,), (120.0, 60.0), (50.0, 90.0), (60.0, 130.0)]
)
def test_lines_that_share_a_stamp_do_not_drift(
    rates: tuple[float, ...], phase: float
) -> None:
    """Fails if a quiet burst is lost where several lines share a whole second."""
    episode = burst(4, 4, 8)
    clock, held = 1000.0 + phase, 160
    for number in range(300):
        tok_s = rates[number % len(rates)]
        before = int(clock)
        clock += 40.0 / tok_s
        held += 40
        window = line(episode, held, float(int(clock) - before), tok_s)
        assert window.seats == (4, 4, 4, 4), number
        assert window.freed == 0.0


def test_the_cache_gives_back_what_ended() -> None:
    """Fails if tokens of requests that ended are not seen within two seconds."""
    episode = burst(4, 4, 8)
    held = 160
    for _ in range(10):
        held += 120
        line(episode, held, 1.0, 120.0)
    held -= 4 * 100
    windows = []
    for _ in range(3):
        held += 90
        windows.append(line(episode, held, 1.0, 90.0))
    assert windows[-1].seats is None
    assert windows[-1].freed == pytest.approx(4 * 100, abs=120)


def test_a_prompt_that_nobody_logged_spoils_the_balance() -> None:
    """Fails if the cache may gain what was neither prefilled nor decoded."""
    episode = burst(4, 4, 200)
    held = 16 * 202
    for _ in range(5):
        held += 120
        assert line(episode, held, 1.0, 120.0).episode == 0
    held += 120 + 5 * 200
    assert line(episode, held, 1.0, 120.0).episode == -1


def starved(told: str) -> list[str]:
    """Sixteen requests, of which six are retracted and four of those taken in again."""
    shape = lines.Shape()
    log = [f"{lines.head(shape, 0.0, None)}{lines.server_args(shape, pp_size=4)}"]

    def say(second: float, text: str) -> None:
        log.extend(f"{lines.head(shape, second, rank)}{text}" for rank in range(4))

    say(1.0, lines.limits(64, 2000))
    for _ in range(4):
        say(10.0, lines.prefill(shape, 4, 400, 0.8, 0, 3))
    for lap in range(20):
        say(10.0 + lap, lines.decode(shape, 4, 1616 + 16 * lap, 0.9, 160.0, 3))
    for _ in range(3):
        say(30.0, f"KV cache pool is full. Retract requests. {told}")
    say(30.0, lines.decode(shape, 3, 1232, 0.9, 160.0, 9))
    for lap in range(1, 40):
        say(30.0 + lap, lines.decode(shape, 3, 1232 + 8 * lap, 0.9, 100.0, 9))
        if lap == 20:
            answer = 'INFO:     127.0.0.1:1 - "POST /generate HTTP/1.1" 200 OK'
            log.extend([f"{lines.head(shape, 50.0, None)}{answer}"] * 4)
            say(50.0, lines.prefill(shape, 4, 480, 0.9, 0, 5))
    return log


def test_retracted_requests_are_not_in_flight(tmp_path: Path) -> None:
    """Fails if requests that went back to the queue count as running."""
    path = tmp_path / "a"
    path.write_text("\n".join(starved("#retracted_reqs: 2, ...")) + "\n")
    report = diagnose_logs([str(path)], Hints())
    assert report.verdict.value == "memory-limited"
    numbers = [m.in_flight for m in report.timeline if m.in_flight is not None]
    assert numbers[0] == 16
    assert set(numbers[-8:]) == {10}


def test_a_retraction_without_a_number_is_no_count(tmp_path: Path) -> None:
    """Fails if the count goes on where nobody says how many went back."""
    path = tmp_path / "a"
    path.write_text("\n".join(starved("")) + "\n")
    report = diagnose_logs([str(path)], Hints())
    assert all(m.in_flight is None for m in report.timeline[-8:])
