"""Options of the verb ``simulate``."""

import argparse
from pathlib import Path

from sglang_ppfix.sim.hardware import GPUS, LINKS
from sglang_ppfix.sim.policies import POLICIES
from sglang_ppfix.sim.presets import preset_names

_DEFAULT_POLICIES = ("stock", "balanced")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the verb; several values separated by commas make a sweep."""
    what = parser.add_argument_group("what to simulate")
    what.add_argument(
        "--preset",
        metavar="NAME",
        help=f"a reported server: {', '.join(preset_names())}",
    )
    what.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="config.json of a model: stage times estimated for --gpu",
    )
    what.add_argument("--gpu", metavar="NAME", help=f"one of {', '.join(GPUS)}")
    what.add_argument(
        "--link",
        metavar="NAME",
        help=f"between the GPUs, one of {', '.join(LINKS)}; default pcie5",
    )
    what.add_argument(
        "--tp", type=int, metavar="N", help="GPUs of a stage, with --config"
    )
    what.add_argument("--pp", type=int, default=8, metavar="P", help="stages")
    what.add_argument(
        "--stage-ms",
        metavar="TIME",
        help='decode of a stage: "2+1.8b" (b requests; default "2+2b"), or a profile '
        "file",
    )
    what.add_argument(
        "--prefill-ms", metavar="TIME", help='prefill of a stage: "5+0.02n" (n tokens)'
    )
    what.add_argument("--hop-ms", type=float, metavar="MS", help="to the next stage")
    what.add_argument(
        "--head-ms", type=float, metavar="MS", help="extra on the last one"
    )
    what.add_argument(
        "--spread", type=float, metavar="PART", help="of stage times: 0.1"
    )
    what.add_argument("--max-running-requests", type=int, default=64, metavar="N")
    what.add_argument(
        "--chunked-prefill-size",
        type=int,
        metavar="TOKENS",
        help="0 for none; default SGLang's on --gpu, else 8192",
    )
    what.add_argument(
        "--kv-tokens",
        type=int,
        metavar="TOKENS",
        help="KV pool; default: what --gpu holds, else more than enough",
    )
    sweep = parser.add_argument_group("policies, and values to sweep")
    sweep.add_argument(
        "--policies",
        type=_names,
        default=_DEFAULT_POLICIES,
        metavar="NAME,...",
        help=f"of {', '.join(POLICIES)}; all",
    )
    sweep.add_argument(
        "--clients",
        type=_integers,
        default=(),
        metavar="C,C,...",
        help="of a closed loop, also with a trace's requests; or of a burst",
    )
    sweep.add_argument("--async-depth", type=_integers, metavar="D,D,...")
    sweep.add_argument("--cap", type=_integers, metavar="N,N,...")
    sweep.add_argument(
        "--slots", type=_integers, metavar="S,S,...", help="target slots"
    )
    sweep.add_argument(
        "--layers",
        type=_splits,
        metavar="N,N,...[/N,N,...]",
        help="layers of each stage; several splits separated by /",
    )
    load = parser.add_argument_group("load")
    load.add_argument(
        "--load",
        metavar="KIND",
        help="closed (default), burst, poisson, or the file of a trace",
    )
    load.add_argument("--requests", type=int, metavar="N")
    load.add_argument("--rate", type=float, metavar="PER_S", help="of arrivals")
    load.add_argument("--prompt-tokens", type=float, metavar="N", help="mean")
    load.add_argument("--output-tokens", type=float, metavar="N", help="mean")
    load.add_argument("--lengths", metavar="SHAPE", help="fixed, uniform, long-tail")
    load.add_argument("--seed", type=int, metavar="N")
    out = parser.add_argument_group("results")
    out.add_argument(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help="all figures, to the file or else to standard output",
    )
    out.add_argument("--plot", type=Path, metavar="FILE", help="picture (PNG)")
    out.add_argument(
        "--gantt", type=Path, metavar="FILE", help="stages over time (PNG)"
    )
    out.add_argument("--trace", type=Path, metavar="FILE", help="Perfetto trace (JSON)")
    out.add_argument("--jobs", type=int, metavar="N", help="processes")
    out.add_argument(
        "--no-bounds", action="store_true", help="one run a row, no uncertainty"
    )


def _integers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _splits(text: str) -> tuple[tuple[int, ...], ...]:
    return tuple(_integers(part) for part in text.split("/"))


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))
