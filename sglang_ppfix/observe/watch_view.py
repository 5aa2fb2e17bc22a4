"""What ``watch`` shows of a running server. Pure: two states in, a table out."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

State = Mapping[str, Any]
_PARTS = (
    ("busy_s", "busy"),
    ("waiting_s", "waiting for the pipeline"),
    ("nothing_to_do_s", "nothing to do"),
)


def view(state: State, before: State | None, gpus: Sequence[str]) -> RenderableType:
    """The whole screen.

    Args:
        state: the plugin's state now (``RemoteServer.state``).
        before: the same a moment ago; None at the first look.
        gpus: lines about this machine's GPUs.
    """
    parts: list[RenderableType] = [headline(state, before), slots(state)]
    if any("busy_s" in rank for rank in state["ranks"]):
        parts.append(stages(state, before))
    parts.extend(Text(line) for line in gpus)
    return Group(*parts)


def headline(state: State, before: State | None) -> Text:
    """Policy, load and throughput in two lines."""
    live, queue = sum(state["occupancy"]), state["queue_req"]
    rate = throughput(state, before)
    speed = "-" if rate is None else f"{rate:.1f}"
    return Text(
        f"policy {state['policy']}, target slots {state['target_slots']} of "
        f"{state['slots']}, cap {state['cap']}"
        f"{' (given)' if state['cap_given'] else ''}\n"
        f"running {live}, queue {queue}, {speed} tok/s, lap "
        f"{state['lap_s'] * 1e3:.1f} ms, slots filled {state['filled']:.1f}, largest "
        f"micro-batch {state['largest']:.1f} (evenly {state['even']:.1f})"
    )


def throughput(state: State, before: State | None) -> float | None:
    """Decoded tokens a second between two looks, by the server's own clock."""
    if before is None or state["clock_s"] <= before["clock_s"]:
        return None
    tokens = state["decode_tokens"] - before["decode_tokens"]
    return float(tokens / (state["clock_s"] - before["clock_s"]))


def slots(state: State) -> Table:
    """One row a slot, with a bar as long as the cap."""
    table = Table(
        "slot", "requests", "", title="micro-batch ring", title_justify="left"
    )
    cap = max(state["cap"] or 1, *state["occupancy"], 1)
    for slot, held in enumerate(state["occupancy"]):
        bar = "#" * round(30 * held / cap)
        table.add_row(str(slot), str(held), f"{bar:<30}|")
    return table


def stages(state: State, before: State | None) -> Table:
    """One row a stage: how its device spent the time since the last look."""
    table = Table("stage", *(name for _key, name in _PARTS), "decode ms by size")
    earlier = {rank["pp_rank"]: rank for rank in (before or {}).get("ranks", ())}
    for rank in state["ranks"]:
        last = earlier.get(rank["pp_rank"], {})
        spent = [rank.get(key, 0.0) - last.get(key, 0.0) for key, _name in _PARTS]
        total = sum(spent)
        shares = [f"{part / total:.0%}" if total > 0 else "-" for part in spent]
        times = rank.get("decode_ms", {})
        sizes = sorted(times, key=int)
        shown = ", ".join(f"{size}: {times[size]:.1f}" for size in sizes[-6:])
        table.add_row(f"PP{rank['pp_rank']}", *shares, shown)
    return table
