"""What a user asks for as a load."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .load import Load, closed_loop, lengths
from .load import poisson as poisson_load
from .traces import read_trace


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
        """The load for ``clients``; a trace with 0 keeps its own arrivals.

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
            Path(self.kind),
            requests=self.requests,
            rate=self.rate,
            clients=clients or None,
            seed=self.seed,
        )

    def counts(
        self, given: tuple[int, ...], default: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Numbers of clients to run; a single 0 for a load without clients.

        Raises:
            ValueError: clients for a load that has none.
        """
        if self.kind in ("closed", "burst"):
            return given or default
        if given and self.kind == "poisson":
            raise ValueError("--load poisson: needs --rate and has no --clients")
        if given and self.rate is not None:
            raise ValueError("--clients: allowed with a trace is it or --rate")
        return given or (0,)
