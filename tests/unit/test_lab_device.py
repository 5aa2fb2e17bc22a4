"""The emulated device: launches return at once, events wait, one kernel at a time."""

import contextlib

import pytest

from sglang_ppfix.lab import device
from sglang_ppfix.lab.device import Device, Event, Stream, StreamContext


def test_a_launch_returns_before_its_kernel_is_done() -> None:
    """Sleeping in the launch, so that CPU and device time add up, would fail here."""
    event = Event()
    with StreamContext(Stream()):
        kernel = Device().launch(3600.0)
        event.record()
    assert kernel.end == pytest.approx(kernel.start + 3600.0)
    assert not event.query()


def test_kernels_of_one_device_never_overlap() -> None:
    """Two streams that each believe the device is free would fail here."""
    gpu = Device()
    with StreamContext(Stream()):
        first = gpu.launch(10.0)
    with StreamContext(Stream()):
        second = gpu.launch(10.0)
    assert second.start == first.end


def test_a_kernel_waits_for_the_data_of_its_stream() -> None:
    """Starting before the previous stage's message is there would fail here."""
    stream = Stream()
    arrival = device.now() + 100.0
    stream.wait(arrival)
    with StreamContext(stream):
        kernel = Device().launch(1.0)
    assert kernel.launched < arrival == kernel.start


def test_an_event_marks_the_moment_of_its_record() -> None:
    """An event that moved with later launches would make everyone wait too long."""
    gpu, stream, event = Device(), Stream(), Event()
    with StreamContext(stream):
        first = gpu.launch(10.0)
        event.record()
        gpu.launch(10.0)
    other = Stream()
    other.wait_event(event)
    assert other.free_at == first.end
    other.wait_stream(stream)
    assert other.free_at == stream.free_at


def test_synchronize_returns_when_the_mark_is_reached() -> None:
    """Returning early, as ``torch.cpu``'s own event does, would fail here."""
    event = Event()
    with StreamContext(Stream()):
        Device().launch(0.01)
        event.record()
    assert not event.query()
    event.synchronize()
    assert event.query()


def test_contexts_nest_and_come_back_after_an_error() -> None:
    """A current stream left behind would book kernels on the wrong stream."""
    outer, inner = Stream(), Stream()
    before = device.streams.current
    context = StreamContext(outer)
    with context:
        with contextlib.suppress(ValueError), StreamContext(inner):
            assert device.streams.current is inner
            raise ValueError
        assert device.streams.current is outer
        with StreamContext(None), context:
            assert device.streams.current is outer
        assert device.streams.current is outer
    assert device.streams.current is before
