"""From what a user asks for to the cases of a sweep."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from .load_options import LoadOptions
from .policies import POLICIES
from .presets import Preset, Reading, the_case
from .server import Server
from .stage_source import Shape, Stages
from .sweep import Case

# Of a load that is made for numbers of clients, where none is given.
_CLIENTS = (8, 16, 32)


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
        sums = {sum(layers) for layers in self.layers if layers is not None}
        if len(sums) > 1:
            shown = ", ".join(map(str, sorted(sums)))
            raise ValueError(f"--layers: splits of one model, but with {shown} layers")


def own_cases(
    server: Server, stages: Stages | Shape, sweep: Sweep, options: LoadOptions
) -> list[Case]:
    """Cases of a server that the user describes.

    Raises:
        ValueError: values that are not allowed or do not fit together.
    """
    cases = []
    clients = options.counts(sweep.clients, _CLIENTS)
    loads = {count: options.make(count) for count in clients}
    for layers, depth, cap, slots in product(
        sweep.layers, sweep.depths, sweep.caps, sweep.slots
    ):
        kv_tokens = server.kv_tokens
        if kv_tokens is None:
            kv_tokens = stages.kv_tokens(server.pp_size, layers)
        changed = replace(
            server,
            async_depth=server.async_depth if depth is None else depth,
            cap=server.cap if cap is None else cap,
            target_slots=server.target_slots if slots is None else slots,
            kv_tokens=kv_tokens,
        )
        for count in clients:
            load = loads[count]
            profile = stages.profile(server.pp_size, layers, load)
            readings = (Reading("given", profile),)
            labels = {**_labels(changed, layers), "clients": count or None}
            for policy in sweep.policies:
                cases.append(Case(policy, changed, load, readings, dict(labels)))
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
    clients = sweep.clients or preset.clients
    if options is not None:
        clients = options.counts(sweep.clients, preset.clients)
    cases = []
    for layers, depth, cap, slots, count, policy in product(
        sweep.layers,
        sweep.depths,
        sweep.caps,
        sweep.slots,
        clients,
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
        labels["clients"] = count or None
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
