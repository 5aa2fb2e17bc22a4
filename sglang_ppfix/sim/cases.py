"""From what a user asks for to the cases of a sweep."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np

from .load import Load, closed_loop, lengths
from .load import poisson as poisson_load
from .policies import POLICIES
from .presets import Preset, Reading, the_case
from .profile_file import read_profile
from .server import Server
from .sweep import Case
from .traces import read_trace


@dataclass(frozen=True)
class Sweep:
    """Values to combine; a tuple of one is no sweep.

    Attributes:
        policies: who decides.
        clients: of a closed loop, or requests of a burst; None for other loads.
        depths: async depth; None leaves a preset's.
        caps: ``pp_max_micro_batch_size``; None lets each policy derive it.
        slots: target slots; None lets the rule choose.
        layers: layers per stage; None leaves SGLang's default.
    """

    policies: tuple[str, ...]
    clients: tuple[int, ...]
    depths: tuple[int | None, ...] = (None,)
    caps: tuple[int | None, ...] = (None,)
    slots: tuple[int | None, ...] = (None,)
    layers: tuple[tuple[int, ...] | None, ...] = (None,)

    def __post_init__(self) -> None:
        for policy in self.policies:
            if policy not in POLICIES:
                allowed = ", ".join(POLICIES)
                raise ValueError(f"--policies {policy}: allowed are {allowed}")
        if any(clients < 1 for clients in self.clients):
            raise ValueError(f"--clients {min(self.clients)}: allowed is 1 or more")


@dataclass(frozen=True)
class LoadOptions:
    """What a load is made of.

    Attributes:
        kind: ``closed``, ``burst``, ``poisson`` or the path of a trace file.
        requests: of the whole run; None takes eight per client.
        prompt: mean prompt tokens.
        output: mean output tokens.
        shape: of both: ``fixed``, ``uniform``, ``long-tail``.
        rate: arrivals per second of ``poisson``, or in place of a trace's own.
        seed: of everything random.
    """

    kind: str = "closed"
    requests: int | None = None
    prompt: float = 100
    output: float = 200
    shape: str = "uniform"
    rate: float | None = None
    seed: int = 0

    def make(self, clients: int) -> Load:
        """The load for ``clients``.

        Raises:
            ValueError: values that do not fit together.
        """
        count = self.requests or 8 * clients
        if self.kind == "closed":
            return closed_loop(
                clients,
                count,
                self.prompt,
                self.output,
                shape=self.shape,
                seed=self.seed,
            )
        if self.kind == "burst":
            rng = np.random.default_rng(self.seed)
            return Load(
                f"burst {clients}",
                lengths(self.prompt, clients, rng, self.shape),
                lengths(self.output, clients, rng, self.shape),
                arrivals=[0.0] * clients,
            )
        if self.kind == "poisson":
            if self.rate is None or self.rate <= 0:
                raise ValueError("--load poisson: needs --rate, arrivals per second")
            return poisson_load(
                self.rate,
                self.requests or 1000,
                self.prompt,
                self.output,
                shape=self.shape,
                seed=self.seed,
            )
        return read_trace(
            Path(self.kind), requests=self.requests, rate=self.rate, seed=self.seed
        )

    @property
    def by_clients(self) -> bool:
        """Whether the load is one per number of clients."""
        return self.kind in ("closed", "burst")


@dataclass(frozen=True)
class Stages:
    """What a profile is made of, beside the layers (see ``read_profile``)."""

    text: str
    prefill: str | None = None
    hop_ms: float | None = None
    head_ms: float = 0.0
    spread: float = 0.0


def own_cases(
    server: Server, stages: Stages, sweep: Sweep, options: LoadOptions
) -> list[Case]:
    """Cases of a server that the user describes.

    Raises:
        ValueError: values that are not allowed or do not fit together.
    """
    cases = []
    clients = sweep.clients if options.by_clients else (0,)
    loads = {count: options.make(count) for count in clients}
    for layers, depth, cap, slots in product(
        sweep.layers, sweep.depths, sweep.caps, sweep.slots
    ):
        profile = read_profile(
            stages.text,
            server.pp_size,
            prefill=stages.prefill,
            hop_ms=stages.hop_ms,
            head_ms=stages.head_ms,
            layers=layers,
            spread=stages.spread,
        )
        changed = replace(
            server,
            async_depth=server.async_depth if depth is None else depth,
            cap=server.cap if cap is None else cap,
            target_slots=server.target_slots if slots is None else slots,
        )
        labels = _labels(changed, layers)
        for count, policy in product(clients, sweep.policies):
            case = Case(
                policy,
                changed,
                loads[count],
                (Reading("given", profile),),
                dict(labels),
            )
            case.labels["clients"] = count or None
            cases.append(case)
    return cases


def preset_cases(
    preset: Preset, sweep: Sweep, options: LoadOptions | None
) -> list[Case]:
    """Cases of a preset: stock as reported, everything else as advised.

    Raises:
        ValueError: layers for a preset whose model is not known by layers.
    """
    if sweep.layers != (None,) and preset.name != "the-case":
        raise ValueError(f"--layers: preset {preset.name} has no layers to split")
    cases = []
    for layers, depth, cap, slots, count, policy in product(
        sweep.layers,
        sweep.depths,
        sweep.caps,
        sweep.slots,
        sweep.clients or preset.clients,
        sweep.policies,
    ):
        chosen = the_case(layers) if layers else preset
        server = chosen.server if policy == "stock" else chosen.advised
        server = replace(
            server,
            async_depth=server.async_depth if depth is None else depth,
            cap=server.cap if cap is None else cap,
            target_slots=slots,
        )
        load = options.make(count) if options else chosen.load(count)
        labels = _labels(server, layers)
        labels["clients"] = count
        if policy == "stock" and server == preset.server and not layers:
            labels["reported"] = preset.reported.get(count)
        cases.append(Case(policy, server, load, chosen.readings, labels))
    return cases


def _labels(server: Server, layers: Sequence[int] | None) -> dict[str, object]:
    return {
        "async_depth": server.async_depth,
        "cap": server.cap,
        "target_slots": server.target_slots,
        "layers": ",".join(map(str, layers)) if layers else None,
    }
