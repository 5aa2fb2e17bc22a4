"""Profiles as users have them: a text, a file, or what the plugin measured.

A profile file is the lab's (docs/lab.md): ``{"name", "hop_ms", "stages": [{"decode",
"prefill"}, ...]}``. A file with ``pp_rank`` and ``decode_ms`` in it, such as a saved
``/server_info`` of a server with the plugin, gives the stages as they were measured.
A CSV with the columns ``batch_size,ms`` gives the steps of the whole model.
"""

import csv
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .curve import Affine, Curve, Points, Sum
from .profile import Profile

_NUMBER = r"(\d+(?:\.\d*)?|\.\d+)"
_AFFINE = re.compile(rf"{_NUMBER}(?:\+{_NUMBER}\*?([a-z]))?$")


class ProfileError(ValueError):
    """Stage times that cannot be used; the text names the setting and its value."""


def read_profile(
    text: str,
    pp_size: int,
    *,
    prefill: str | None = None,
    hop_ms: float | None = None,
    head_ms: float = 0.0,
    layers: Sequence[int] | None = None,
    spread: float = 0.0,
) -> Profile:
    """A profile out of what the user wrote.

    Args:
        text: milliseconds of a stage as ``"40"`` or ``"20+10b"``, or a file's path.
        pp_size: number of stages.
        prefill: ``"30+0.3n"`` over prompt tokens; replaces the profile's own.
        hop_ms: latency between stages; replaces the profile's own.
        head_ms: added to the last stage.
        layers: layers per stage: stage times are scaled with them.
        spread: relative uncertainty of the stage times.

    Raises:
        ProfileError: bad text, unreadable file, or a wrong number of stages.
    """
    path = Path(text)
    if path.suffix in (".json", ".csv") or path.is_file():
        profile = _read_file(path, pp_size)
    else:
        decode = affine(text, "--stage-ms", "b")
        profile = Profile(
            f"t(b) = {text} ms",
            (decode,) * pp_size,
            (_default_prefill(decode),) * pp_size,
        )
    if prefill is not None:
        curve = affine(prefill, "--prefill-ms", "n")
        profile = replace(profile, prefill=(curve,) * pp_size)
    factors = [1.0] * pp_size
    if layers is not None:
        if len(layers) != pp_size or min(layers) < 1:
            shown = ",".join(map(str, layers))
            raise ProfileError(
                f"--layers {shown}: allowed are {pp_size} numbers of at least 1"
            )
        factors = [n * pp_size / sum(layers) for n in layers]
    extra = [0.0] * (pp_size - 1) + [head_ms / 1e3]
    parts = list(zip(factors, extra, strict=True))
    return replace(
        profile,
        decode=tuple(
            Sum(c, *part) for c, part in zip(profile.decode, parts, strict=True)
        ),
        prefill=tuple(
            Sum(c, *part) for c, part in zip(profile.prefill, parts, strict=True)
        ),
        hop=profile.hop if hop_ms is None else hop_ms / 1e3,
        spread=spread,
    )


def affine(text: str, setting: str, variable: str) -> Affine:
    """Read ``"40"``, ``"20+10b"`` or ``"20+10*b"`` milliseconds.

    Raises:
        ProfileError: the text is something else, or the time is always 0.
    """
    match = _AFFINE.match(text.replace(" ", ""))
    if not match or (match[3] or variable) != variable:
        raise ProfileError(
            f'{setting} {text!r}: allowed are milliseconds as "40" or "20+10{variable}"'
        )
    base, slope = float(match[1]), float(match[2] or 0)
    if base + slope <= 0:
        raise ProfileError(f"{setting} {text!r}: must be above 0 ms")
    return Affine(base / 1e3, slope / 1e3)


def _default_prefill(decode: Curve) -> Curve:
    """A hundredth of a decode step of one request per prompt token."""
    return Affine(decode(1), decode(1) / 100)


def _read_file(path: Path, pp_size: int) -> Profile:
    setting = f"--stage-ms {path}"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"{setting}: cannot be read: {error}") from None
    if path.suffix == ".csv":
        return _whole_model(text, pp_size, path)
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ProfileError(f"{setting}: not JSON: {error}") from None
    if isinstance(content, dict) and isinstance(content.get("stages"), list):
        return _lab_profile(content, pp_size, setting)
    measured = {rank["pp_rank"]: rank["decode_ms"] for rank in _ranks(content)}
    if measured:
        return _measured(measured, pp_size, setting)
    raise ProfileError(
        f'{setting}: holds neither "stages" nor ranks with "pp_rank" and "decode_ms"'
    )


def _lab_profile(content: dict[str, Any], pp_size: int, setting: str) -> Profile:
    entries = content["stages"]
    entries = entries * pp_size if len(entries) == 1 else entries
    if len(entries) != pp_size:
        raise ProfileError(
            f"{setting}: has {len(entries)} stages, allowed are 1 or {pp_size}"
        )
    decode, prefill = [], []
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict) or "decode" not in entry:
            raise ProfileError(f'{setting}: stage {number} needs "decode"')
        decode.append(_curve(entry["decode"], f"{setting}: stage {number} decode", "b"))
        prefill.append(
            _curve(entry["prefill"], f"{setting}: stage {number} prefill", "n")
            if "prefill" in entry
            else _default_prefill(decode[-1])
        )
    return Profile(
        str(content.get("name", setting)),
        tuple(decode),
        tuple(prefill),
        hop=float(content.get("hop_ms", 0.05)) / 1e3,
    )


def _curve(value: Any, where: str, variable: str) -> Curve:
    if isinstance(value, str):
        return affine(value, where, variable)
    try:
        return Points.of([(float(x), float(ms) / 1e3) for x, ms in value])
    except (TypeError, ValueError):
        raise ProfileError(
            f'{where}: allowed are "20+10{variable}" and [[count, ms], ...]'
        ) from None


def _ranks(content: Any) -> Iterator[dict[str, Any]]:
    """Every part of a document that reports what a rank measured."""
    if isinstance(content, dict):
        if content.get("decode_ms") and "pp_rank" in content:
            yield content
        content = list(content.values())
    if isinstance(content, list):
        for part in content:
            yield from _ranks(part)


def _measured(
    ranks: dict[int, dict[str, float]], pp_size: int, setting: str
) -> Profile:
    if sorted(ranks) != list(range(pp_size)):
        raise ProfileError(
            f"{setting}: has ranks {sorted(ranks)}, needs 0 to {pp_size - 1}"
        )
    decode = tuple(
        Points.of([(float(b), ms / 1e3) for b, ms in ranks[rank].items()])
        for rank in range(pp_size)
    )
    return Profile(f"measured, {setting}", decode, tuple(map(_default_prefill, decode)))


def _whole_model(text: str, pp_size: int, path: Path) -> Profile:
    try:
        steps = Points.of(
            [
                (float(row["batch_size"]), float(row["ms"]) / 1e3)
                for row in csv.DictReader(text.splitlines())
            ]
        )
    except (KeyError, TypeError, ValueError):
        raise ProfileError(
            f"--stage-ms {path}: needs the columns batch_size,ms (whole model)"
        ) from None
    stage = Sum(steps, 1 / pp_size)
    return Profile(str(path), (stage,) * pp_size, (_default_prefill(stage),) * pp_size)
