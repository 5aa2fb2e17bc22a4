"""Results of ``measure.py`` as a table.

python benchmarks/auto/table.py benchmarks/auto/results/*.json
"""

import json
import sys
from pathlib import Path
from statistics import fmean
from typing import Any


def row(profile: str, row: dict[str, Any]) -> str:
    """One number of clients."""
    means = [f"{fmean(row['tok_s'][policy]):.1f}" for policy in row["tok_s"]]
    cells = [profile, row["clients"], row["output_tokens"], *means]
    for key in ("balanced_to_stock", "auto_to_stock", "auto_to_best"):
        spread = row[key]["spread"]
        cells.append(f"{row[key]['ratio']:.3f} (±{spread:.3f})")
    cells.append(" ".join(map(str, row["slots"])))
    return "| " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    """Print the table of all files given."""
    print(
        "| stages | clients | tokens | stock tok/s | balanced | auto "
        "| balanced / stock | auto / stock | auto / better of both | slots of auto |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |")
    for name in sys.argv[1:]:
        document = json.loads(Path(name).read_text())
        for each in document["rows"]:
            print(row(document["profile"], each))


if __name__ == "__main__":
    main()
