"""How fast, and in how much memory, ``sglang-ppfix diagnose`` reads a large log.

Writes a log of the wanted size (a ring's lines, repeated with later stamps), runs the
command on it in a process of its own, and prints seconds and peak memory:

    python benchmarks/diagnose/speed.py --gigabytes 1

``--other`` adds lines that are no batch lines, as busy servers print them.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2] / "tests" / "unit"


def base_log(release: str, other: float) -> tuple[list[tuple[int, bytes]], int]:
    """Lines as (second, rest behind the stamp), and the seconds they cover."""
    sys.path.insert(0, str(TESTS))
    from diagnose_lines import Shape
    from diagnose_ring import Load, Ring, RingLog, affine

    ring = Ring(8, 64, affine(1.9, 1.8), depth=8, shape=Shape(release=release))
    load = Load(32, 600, output=lambda rng: rng.randint(100, 400))
    found = []
    for line in RingLog(ring, [load]).log[10:]:
        stamp = datetime.strptime(line[1:20], "%Y-%m-%d %H:%M:%S")
        second = int(stamp.replace(tzinfo=timezone.utc).timestamp())
        found.append((second, line[20:].encode()))
        if other and len(found) % max(int(1 / other), 1) == 0:
            text = b'] INFO:     10.0.0.7:55123 - "GET /metrics HTTP/1.1" 200 OK'
            found.append((second, text))
    first = found[0][0]
    return [(second - first, rest) for second, rest in found], found[-1][0] - first + 1


def write_log(path: Path, size: int, release: str, other: float) -> int:
    """Write at least ``size`` bytes; returns the number of lines."""
    base, span = base_log(release, other)
    start = datetime(2026, 6, 1, tzinfo=timezone.utc)
    written = lines = shift = 0
    with path.open("wb") as out:
        while written < size:
            stamps = [
                (start + timedelta(seconds=shift + n)).strftime("%Y-%m-%d %H:%M:%S")
                for n in range(span)
            ]
            heads = [f"[{stamp}".encode() for stamp in stamps]
            data = b"\n".join(heads[second] + rest for second, rest in base) + b"\n"
            out.write(data)
            written += len(data)
            lines += len(base)
            shift += span + 30
    return lines


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--release", default="0.5.23")
    parser.add_argument("--other", type=float, default=0.0)
    parser.add_argument("--folder", default=None, help="where the log is written")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        path = Path(folder) / "server.log"
        lines = write_log(path, int(args.gigabytes * 1e9), args.release, args.other)
        size = path.stat().st_size
        command = [
            sys.executable,
            "-m",
            "sglang_ppfix",
            "diagnose",
            "--json",
            str(path),
        ]
        began = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - began
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode not in (0, 1):
            sys.exit(done.stderr or done.stdout)
        verdict = json.loads(done.stdout)["verdict"]
        print(
            f"{size / 1e9:.2f} GB, {lines} lines, release {args.release}: "
            f"{seconds:.1f} s ({usage.ru_utime:.1f} s of CPU), "
            f"peak memory {usage.ru_maxrss / 1024:.0f} MB, verdict {verdict}, "
            f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
        )


if __name__ == "__main__":
    main()
