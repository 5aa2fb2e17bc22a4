"""The exact flag or variable for each finding."""

import math

from .diagnosis_context import Context
from .diagnosis_layers import lighter_tail, shown
from .diagnosis_types import Fix, OperatingPoint


def fill_evenly(context: Context, point: OperatingPoint) -> list[Fix]:
    """Even filling: with the plugin, or with SGLang's own cap."""
    ideal = context.ideal(point)
    if context.facts.plugin:
        fixes = [
            Fix(
                "SGLANG_PPFIX_POLICY=balanced",
                "if the plugin only observes, or another policy was set",
            )
        ]
    else:
        fixes = [
            Fix(
                "SGLANG_PPFIX=1",
                "spreads requests evenly over the slots, whatever the load "
                "(pip install sglang-ppfix)",
            )
        ]
    if ideal is not None:
        room = ideal * (context.config.loop_size or context.pp_size)
        fixes.append(
            Fix(
                f"--pp-max-micro-batch-size {ideal}",
                "without the plugin: even at this load only, and no more than "
                f"{room} requests in flight at any load",
            )
        )
    return fixes


def no_async_depth(context: Context) -> Fix:
    """Drop the extra slots."""
    return Fix(
        "--pp-async-batch-depth 0",
        f"a ring of {context.pp_size} slots instead of {context.config.loop_size}",
    )


def raise_cap(context: Context) -> list[Fix]:
    """A cap that lets all rows be used."""
    rows = context.config.max_running_requests or 0
    cap = math.ceil(rows / context.pp_size)
    return [
        Fix(
            f"--pp-max-micro-batch-size {cap}",
            f"{cap} in each of {context.pp_size} slots hold all {rows} rows",
        ),
        Fix(
            f"--cuda-graph-max-bs {cap} or more",
            "so that micro-batches of this size still run as CUDA graphs",
        ),
    ]


def more_rows(context: Context) -> list[Fix]:
    """More requests in flight."""
    rows = context.config.max_running_requests
    wanted = f" (now {rows})" if rows else ""
    return [
        Fix(
            f"--max-running-requests above the present limit{wanted}",
            "all rows are taken while KV cache is free; keep it a multiple of "
            f"{context.pp_size}",
        )
    ]


def rows_for_stages(context: Context) -> Fix:
    """At least one row a slot."""
    loop = context.config.loop_size or context.pp_size
    return Fix(
        f"--max-running-requests {loop} or more",
        f"one request for each of the {loop} slots",
    )


def more_kv() -> list[Fix]:
    """More KV cache, or shorter reservations."""
    return [
        Fix(
            "--mem-fraction-static (higher) or --kv-cache-dtype fp8_e5m2",
            "more KV tokens; or fewer layers on the stage with least free memory",
        ),
        Fix(
            "--schedule-conservativeness (higher)",
            "if requests are retracted: admit fewer of them",
        ),
    ]


def split_layers(context: Context, head_layers: float) -> Fix | None:
    """A layer split with a lighter tail."""
    layers = context.config.layers
    if layers is None:
        return None
    split = lighter_tail(layers, context.pp_size, head_layers)
    return Fix(
        f"SGLANG_PP_LAYER_PARTITION={shown(split)}",
        "fewer layers on the stage that also does the output head",
    )


def shorter_prefills(context: Context) -> list[Fix]:
    """Prefill work in pieces that stretch a lap less."""
    chunk = context.config.chunked_prefill_size
    now = f" (now {chunk})" if chunk else ""
    return [
        Fix(
            "SGLANG_PPFIX=1",
            "spreads waiting prompts over the slots of a lap by their tokens",
        ),
        Fix(
            f"--chunked-prefill-size, smaller{now}",
            "a shorter prefill stretches a lap less; prompts take more laps",
        ),
    ]
