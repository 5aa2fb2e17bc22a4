"""The outcome as a table, as JSON, and in a sentence."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from .experiment import Experiment, Outcome, Run
from .machine import describe_machine
from .measure import Measurement

SCHEMA_VERSION = 1
_NONE = "-"


def to_json(outcome: Outcome) -> dict[str, Any]:
    """Everything measured, as plain values (``docs/lab.md`` describes the fields)."""
    experiment = outcome.experiment
    return {
        "schema_version": SCHEMA_VERSION,
        "what": "sglang-ppfix lab: real SGLang, emulated devices on the CPU",
        "machine": describe_machine(),
        "configuration": _configuration(experiment),
        "spread": {arm: _widest(outcome, arm) for arm in experiment.arms},
        "rows": [_row(outcome, clients) for clients in experiment.clients],
    }


def _configuration(experiment: Experiment) -> dict[str, Any]:
    server = experiment.server
    return {
        "pp_size": server.pp_size,
        "max_running_requests": server.max_running_requests,
        "async_depth": server.async_depth,
        "cap": server.cap,
        "chunked_prefill_size": server.chunked_prefill_size,
        "kv_tokens": server.kv_tokens,
        "env": dict(server.env),
        "extra_args": list(server.extra_args),
        "profile": server.profile.to_json(),
        "clients": list(experiment.clients),
        "prompt_tokens": asdict(experiment.prompt),
        "output_tokens": asdict(experiment.output),
        "arrival": experiment.arrival,
        "requests_per_client": experiment.requests_per_client,
        "rate_per_s": experiment.rate_per_s,
        "seed": experiment.seed,
        "arms": list(experiment.arms),
        "pairs": experiment.pairs,
        "repeats": experiment.repeats,
        "stream": experiment.stream,
    }


def _row(outcome: Outcome, clients: int) -> dict[str, Any]:
    stock = outcome.tok_s("stock", clients)
    plugin = outcome.tok_s("plugin", clients)
    bound = outcome.experiment.bound(clients)
    return {
        "clients": clients,
        "stock_tok_s": _rounded(stock),
        "plugin_tok_s": _rounded(plugin),
        "ratio": _rounded(plugin / stock, 3) if plugin and stock else None,
        "outputs_identical": outcome.identical(clients),
        "efficiency": _rounded(plugin / bound, 3) if plugin else None,
        "stock_efficiency": _rounded(stock / bound, 3) if stock else None,
        "bound_tok_s": _rounded(bound),
        "stock": _arm(outcome.of("stock", clients)),
        "plugin": _arm(outcome.of("plugin", clients)),
    }


def _arm(runs: Sequence[Run]) -> dict[str, Any] | None:
    """Median run of one arm and row, and how far the runs lie apart."""
    if not runs:
        return None
    rates = [run.measurement.tok_s for run in runs]
    middle = _median_run(runs)
    return {
        **middle.to_json(),
        "wrong_tokens": [w for run in runs for w in run.measurement.wrong_tokens],
        "errors": [error for run in runs for error in run.measurement.errors],
        "samples_tok_s": [_rounded(rate) for rate in rates],
        "spread": _spread(runs),
    }


def _widest(outcome: Outcome, arm: str) -> float:
    """Largest spread of an arm over all rows; 0 with one run of each."""
    rows = (outcome.of(arm, clients) for clients in outcome.experiment.clients)
    return max(_spread(runs) for runs in rows)


def _spread(runs: Sequence[Run]) -> float:
    """Highest minus lowest throughput over the median."""
    rates = [run.measurement.tok_s for run in runs]
    return round((max(rates) - min(rates)) / statistics.median(rates), 3)


def _median_run(runs: Sequence[Run]) -> Measurement:
    ordered = sorted(runs, key=lambda run: run.measurement.tok_s)
    return ordered[len(ordered) // 2].measurement


def table(outcome: Outcome) -> Table:
    """One line per concurrency; ``stock > plugin`` where both are told."""
    experiment = outcome.experiment
    server = experiment.server
    result = Table(
        title=(
            f"PP{server.pp_size}, {server.slots} slots, max_running_requests "
            f"{server.max_running_requests}, {server.profile.name} (emulated), "
            f"{experiment.arrival}, {experiment.output.average:g} tokens"
        ),
        caption=" > ".join(experiment.arms),
    )
    for name in (
        "clients",
        "tok/s",
        "ratio",
        "efficiency",
        "TPOT mean ms",
        "TPOT p99 ms",
        "TTFT mean ms",
        "slots filled",
        "largest mb",
        "bubble",
        "identical",
    ):
        result.add_column(name, justify="right", no_wrap=True)
    for clients in experiment.clients:
        row = _row(outcome, clients)
        arms = [
            _median_run(runs)
            for arm in experiment.arms
            if (runs := outcome.of(arm, clients))
        ]
        rates = [outcome.tok_s(arm, clients) for arm in experiment.arms]
        best = row["efficiency"] or row["stock_efficiency"]
        result.add_row(
            str(clients),
            _each(rates, "{:.1f}"),
            _NONE if row["ratio"] is None else f"{row['ratio']:.2f}",
            _NONE if best is None else f"{best:.0%}",
            _each([m.tpot_ms.mean if m.tpot_ms else None for m in arms], "{:.0f}"),
            _each([m.tpot_ms.p99 if m.tpot_ms else None for m in arms], "{:.0f}"),
            _each([m.ttft_ms.mean if m.ttft_ms else None for m in arms], "{:.0f}"),
            _each([m.slots_filled for m in arms], "{:.1f}"),
            _each([float(m.largest_micro_batch) for m in arms], "{:.0f}"),
            _each([m.bubble_share for m in arms], "{:.0%}"),
            "yes" if row["outputs_identical"] else "NO",
        )
    return result


def sentence(outcome: Outcome) -> str:
    """What was seen, in words."""
    experiment = outcome.experiment
    parts = []
    for clients in experiment.clients:
        stock, plugin = (outcome.tok_s(arm, clients) for arm in ("stock", "plugin"))
        if stock and plugin:
            parts.append((plugin / stock, clients, stock, plugin))
    if parts:
        lowest, fewest = min(parts)[:2]
        ratio, clients, stock, plugin = max(parts)
        before, after = (
            _median_run(outcome.of(arm, clients)) for arm in ("stock", "plugin")
        )
        text = (
            f"With {clients} clients stock filled {before.slots_filled:.1f} of "
            f"{experiment.server.slots} slots and made {stock:.1f} tok/s, the plugin "
            f"filled {after.slots_filled:.1f} and made {plugin:.1f}: {ratio:.2f} "
            f"times, {plugin / experiment.bound(clients):.0%} of the law's bound; the "
            f"lowest ratio was {lowest:.2f}, with {fewest} clients."
        )
    else:
        arm = experiment.arms[0]
        rates = [outcome.tok_s(arm, clients) or 0.0 for clients in experiment.clients]
        text = f"{arm} made {min(rates):.1f} to {max(rates):.1f} tok/s."
    return f"{text} {_verdict(outcome)}"


def _verdict(outcome: Outcome) -> str:
    """Whether the outputs can be trusted."""
    wrong = sum(len(run.measurement.wrong_tokens) for run in outcome.runs)
    errors = sum(len(run.measurement.errors) for run in outcome.runs)
    requests = sum(len(run.results) for run in outcome.runs)
    if wrong or errors:
        return f"{wrong} of {requests} outputs are WRONG, {errors} requests FAILED."
    same = all(outcome.identical(c) for c in outcome.experiment.clients)
    return (
        f"Every token of {requests} outputs is right, and outputs are "
        f"{'identical' if same else 'NOT identical'} request by request."
    )


def _each(values: Sequence[float | None], form: str) -> str:
    return " > ".join(_NONE if v is None else form.format(v) for v in values) or _NONE


def _rounded(value: float | None, digits: int = 2) -> float | None:
    return None if value is None else round(value, digits)
