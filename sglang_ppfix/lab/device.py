"""The emulated device: streams and events of a GPU, on a clock instead of a chip.

A launch returns at once and only books time on the stream, as on a GPU; an event's
``synchronize`` is what sleeps. The interface is ``torch.cpu``'s, whose own streams and
events do nothing. Times are seconds on CLOCK_MONOTONIC, which all processes of a Linux
machine share, so a time sent to the next stage means the same there.
"""

import time
from typing import Any, NamedTuple

now = time.monotonic


def sleep_until(moment: float) -> None:
    """Return at ``moment``, or at once when it has passed."""
    delay = moment - now()
    if delay > 0:
        time.sleep(delay)


class Stream:
    """Work that runs in order. ``free_at``: when all that was enqueued is done."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        self.free_at = 0.0

    def wait(self, moment: float) -> None:
        """Let what comes next start no earlier than ``moment``."""
        self.free_at = max(self.free_at, moment)

    def wait_stream(self, stream: "Stream") -> None:
        """Wait on the device for what ``stream`` holds now."""
        self.wait(stream.free_at)

    def wait_event(self, event: "Event") -> None:
        """Wait on the device for ``event``."""
        self.wait(event.done_at)

    def record_event(self, event: "Event | None" = None) -> "Event":
        """Mark the end of what is enqueued now."""
        event = event or Event()
        event.record(self)
        return event

    def synchronize(self) -> None:
        """Block the CPU until the stream is empty."""
        sleep_until(self.free_at)


class Event:
    """A mark in a stream."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        self.done_at = 0.0

    def record(self, stream: Stream | None = None) -> None:
        """Mark the end of what ``stream`` (default: the current one) holds now."""
        self.done_at = max((stream or streams.current).free_at, now())

    def synchronize(self) -> None:
        """Block the CPU until the mark is reached."""
        sleep_until(self.done_at)

    def wait(self, stream: Stream | None = None) -> None:
        """Let ``stream`` (default: the current one) wait for the mark."""
        (stream or streams.current).wait_event(self)

    def elapsed_time(self, end: "Event") -> float:
        """Milliseconds of device time from this mark to ``end``."""
        return (end.done_at - self.done_at) * 1e3

    def query(self) -> bool:
        """Whether the mark is reached."""
        return self.done_at <= now()


class StreamContext:
    """Makes ``stream`` the current one inside a ``with``; ``None`` changes nothing."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream
        self._outer: list[Stream] = []

    def __enter__(self) -> None:
        self._outer.append(streams.current)
        if self.stream is not None:
            streams.current = self.stream

    def __exit__(self, *_exception: object) -> None:
        streams.current = self._outer.pop()


class _Streams:
    """The current stream of this process (a scheduler has one thread that launches)."""

    def __init__(self) -> None:
        self.current = Stream()


streams = _Streams()


class Kernel(NamedTuple):
    """When a launch was made, and when the device starts and ends it (seconds)."""

    launched: float
    start: float
    end: float


class Device:
    """One emulated GPU: runs one kernel at a time."""

    def __init__(self) -> None:
        self.busy_until = 0.0

    def launch(self, seconds: float) -> Kernel:
        """Book ``seconds`` on the current stream, and return without waiting."""
        launched = now()
        start = max(launched, streams.current.free_at, self.busy_until)
        end = start + seconds
        streams.current.free_at = self.busy_until = end
        return Kernel(launched, start, end)
