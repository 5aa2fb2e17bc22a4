"""Stages on one GPU: what goes over the wire, and what a wrong release says."""

from types import ModuleType, SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
one_gpu = pytest.importorskip("sglang_ppfix.lab.one_gpu")


class FakeCuda:
    """A tensor that says it is on the GPU; ``to("cuda")`` makes one again."""

    def __init__(self, values):
        self.values, self.is_cuda = values, True

    def cpu(self):
        return SimpleNamespace(
            values=self.values,
            is_cuda=False,
            to=lambda device, non_blocking: FakeCuda(self.values),
        )


def test_only_gpu_tensors_travel_as_cpu_copies_and_come_back():
    """Breaks when a CPU tensor comes back on the GPU, or the caller's dict changes."""
    wire = []
    given = {"hidden": FakeCuda([1]), "lengths": torch.tensor([2]), "kind": "proxy"}
    before = dict(given)

    one_gpu.send(
        lambda d, **k: wire.append((d, k)), None, (given,), {"async_send": True}
    )

    assert given == before
    sent, options = wire[0]
    assert options == {"async_send": True}
    assert not any(getattr(value, "is_cuda", False) for value in sent.values())
    received = one_gpu.receive(lambda: dict(sent), None, (), {})
    assert received.keys() == given.keys()
    assert isinstance(received["hidden"], FakeCuda)
    assert received["lengths"] is given["lengths"]


def test_tensor_dict_may_be_a_keyword():
    """Breaks when only the positional form is understood."""
    wire = []
    one_gpu.send(wire.append, None, (), {"tensor_dict": {"a": FakeCuda([1])}})
    assert wire[0][one_gpu.ON_GPU] == ["a"]


def test_an_empty_message_stays_what_it_is():
    """Breaks when None, SGLang's answer on a lone rank, is taken for a dict."""
    assert one_gpu.receive(lambda: None, None, (), {}) is None


@pytest.mark.parametrize(("asked", "got"), [(0, 6), (7, 7)])
def test_layer_0_is_the_first_layer_of_the_stage(asked, got):
    """Breaks when a layer of the stage itself is mapped to another."""
    pool = SimpleNamespace(start_layer=6)
    assert one_gpu.own_layer(lambda layer: layer, pool, (asked,), {}) == got
    assert one_gpu.own_layer(lambda layer: layer, pool, (), {"layer_id": asked}) == got


def test_every_scheduler_goes_to_gpu_0():
    """Breaks when another argument than the third is replaced."""
    assert one_gpu.on_gpu_0(lambda *a: a, None, ("s", "p", 3, 1), {}) == (
        *("s", "p", 0, 1),
    )
    assert one_gpu.on_gpu_0(lambda **k: k, None, (), {"gpu_id": 3, "tp_rank": 1}) == {
        "gpu_id": 0,
        "tp_rank": 1,
    }


def test_a_release_without_the_target_is_named():
    """Breaks when a missing method or parameter is passed over in silence."""
    module = ModuleType("sglang.fake")
    module.f = lambda other: None
    with pytest.raises(SystemExit, match=r"sglang\.fake\.f\(wanted\) does not exist"):
        one_gpu._wrap(module, "f", "wanted", one_gpu.send)
    with pytest.raises(SystemExit, match=r"sglang\.fake\.A\.g"):
        one_gpu._wrap(module, "A.g", "wanted", one_gpu.send)
