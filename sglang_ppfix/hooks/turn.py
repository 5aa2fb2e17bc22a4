"""One slot's turn to take in requests."""

from typing import Any

from sglang_ppfix.policy import TurnPlan


class Turn:
    """One slot's turn to take in requests; planned when stock builds a batch."""

    __slots__ = (
        "batch",
        "cap",
        "chunk_tokens",
        "chunked_req",
        "held",
        "latched",
        "occupancy",
        "plan",
        "refusal",
        "slot",
        "token_share",
    )

    def __init__(self, slot: int, batch: Any, chunked_req: Any) -> None:
        self.slot = slot
        self.batch = batch
        self.chunked_req = chunked_req
        self.latched: bool = batch.batch_is_full
        # What the plan was made from: requests of each slot; how many, with those in
        # chunks where they land and those that the turn takes in; the cap.
        self.held: list[list[Any]] = []
        self.occupancy: list[int] = []
        self.cap = 1
        # Tokens of a later chunk of a prompt; None without chunks.
        self.chunk_tokens: int | None = None
        self.plan: TurnPlan | None = None
        self.token_share: int | None = None
        # Why the turn ended with requests still waiting.
        self.refusal: str | None = None
