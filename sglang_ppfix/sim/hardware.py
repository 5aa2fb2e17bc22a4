"""GPUs and links: the figures of their data sheets."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """One GPU.

    Attributes:
        name: as users give it.
        memory: bytes.
        bandwidth: of its memory, bytes per second.
        flops: dense bf16 (fp16 where there is no bf16) per second.
    """

    name: str
    memory: float
    bandwidth: float
    flops: float


@dataclass(frozen=True)
class Link:
    """What connects GPUs.

    Attributes:
        name: as users give it.
        bandwidth: bytes per second, one direction, as collectives reach it.
        hop: latency of a message between two GPUs, seconds.
        step: latency that each further GPU adds to an all-reduce, seconds. The least
            certain figure here: on PCIe it differs fivefold between all-reduce kernels.
    """

    name: str
    bandwidth: float
    hop: float
    step: float


def _gpu(name: str, gib: float, tb_s: float, tflops: float) -> Gpu:
    return Gpu(name, gib * 2**30, tb_s * 1e12, tflops * 1e12)


def _link(name: str, gb_s: float, hop_us: float, step_us: float) -> Link:
    return Link(name, gb_s * 1e9, hop_us * 1e-6, step_us * 1e-6)


GPUS = {
    gpu.name: gpu
    for gpu in (
        _gpu("a100-40", 40, 1.56, 312),
        _gpu("a100-80", 80, 2.04, 312),
        _gpu("b200", 180, 8.0, 2250),
        _gpu("b300", 270, 8.0, 2250),
        _gpu("h100", 80, 3.35, 989),
        _gpu("h20", 96, 4.0, 148),
        _gpu("h200", 141, 4.8, 989),
        _gpu("h800", 80, 3.35, 989),
        _gpu("l20", 48, 0.864, 119.5),
        _gpu("l4", 24, 0.3, 121),
        _gpu("l40s", 48, 0.864, 362),
        _gpu("mi300a", 128, 5.3, 981),
        _gpu("mi300x", 192, 5.3, 1307),
        _gpu("mi325x", 256, 6.0, 1307),
        _gpu("rtx-2080ti", 11, 0.616, 54),
        _gpu("rtx-3090", 24, 0.936, 71),
        _gpu("rtx-4090", 24, 1.008, 165),
        _gpu("rtx-5090", 32, 1.79, 210),
        _gpu("rtx-6000-ada", 48, 0.96, 364),
        _gpu("rtx-pro-6000", 96, 1.79, 500),
    )
}

LINKS = {
    link.name: link
    for link in (
        _link("pcie3", 11, 30, 25),
        _link("pcie4", 22, 20, 20),
        _link("pcie5", 44, 15, 20),
        _link("nvlink3", 250, 8, 3),
        _link("nvlink4", 370, 8, 3),
        _link("nvlink5", 740, 8, 3),
        _link("xgmi", 250, 10, 4),
        _link("ib200", 22, 15, 20),
        _link("ib400", 44, 15, 20),
        _link("eth25", 2.5, 60, 60),
        _link("eth100", 10, 40, 40),
    )
}


def find_gpu(name: str) -> Gpu:
    """A GPU by name.

    Raises:
        ValueError: no GPU of that name.
    """
    if name not in GPUS:
        raise ValueError(f"--gpu {name}: allowed are {', '.join(GPUS)}")
    return GPUS[name]


def find_link(name: str) -> Link:
    """A link by name.

    Raises:
        ValueError: no link of that name.
    """
    if name not in LINKS:
        raise ValueError(f"--link {name}: allowed are {', '.join(LINKS)}")
    return LINKS[name]
