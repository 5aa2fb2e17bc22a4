"""A model without kernels: its tokens can be recomputed, its time is a knob.

Every rank keeps one number per KV slot and, in each forward, sums the numbers of each
request's whole history through ``req_to_token``, as attention would read it.
"""

from typing import Any

import numpy as np
import torch
from sglang.srt.layers.logits_processor import LogitsProcessorOutput
from sglang.srt.model_executor.forward_batch_info import PPProxyTensors
from torch import nn

from sglang_ppfix.lab import token_rule
from sglang_ppfix.lab.rank import current_rank

_Ints = np.ndarray[Any, np.dtype[np.int64]]


class ToyPipelineForCausalLM(nn.Module):  # type: ignore[misc]
    """One pipeline stage of the toy model."""

    def __init__(self, config: Any, quant_config: Any = None, prefix: str = "") -> None:
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.zeros(1))
        self.start_layer, self.end_layer = 0, 1
        self._store = np.zeros(1 << 14, dtype=np.int64)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        forward_batch: Any,
        input_embeds: torch.Tensor | None = None,
        pp_proxy_tensors: Any = None,
    ) -> Any:
        """Compute the tokens at once, and book the stage time on the device."""
        rank = current_rank()
        decode = forward_batch.forward_mode.is_decode()
        tokens = input_ids.numpy().astype(np.int64)
        rank.launch_kernel(
            requests=forward_batch.batch_size,
            tokens=len(tokens),
            decode=decode,
            mixed=forward_batch.forward_mode.is_mixed(),
        )
        sums = self._history_sums(tokens, positions, forward_batch, rank.req_to_token)
        sums *= token_rule.rank_weight(rank.pp_rank)
        last = np.arange(len(tokens))
        if not decode:
            last = np.cumsum(forward_batch.extend_seq_lens.numpy()) - 1
        carrier = np.zeros((len(tokens), 2))
        carrier[last, 0] = sums
        carrier[:, 1] = tokens
        if rank.pp_rank > 0:
            received = pp_proxy_tensors["hidden_states"].numpy()
            if not np.array_equal(received[:, 1], carrier[:, 1]):
                raise RuntimeError(
                    "toy model: the previous stage ran other tokens than this one"
                )
            carrier[:, 0] += received[:, 0]
        if not rank.is_last:
            return PPProxyTensors({"hidden_states": torch.from_numpy(carrier)})
        return LogitsProcessorOutput(
            next_token_logits=_logits(carrier[last].astype(np.int64))
        )

    def _history_sums(
        self,
        tokens: _Ints,
        positions: torch.Tensor,
        forward_batch: Any,
        req_to_token: torch.Tensor,
    ) -> _Ints:
        """Write this forward's KV entries, and sum each request's history."""
        written = forward_batch.out_cache_loc.numpy()
        if written.max(initial=0) >= len(self._store):
            self._store = np.resize(self._store, 2 * (int(written.max()) + 1))
        self._store[written] = token_rule.entry(
            tokens, positions.numpy().astype(np.int64)
        )
        lengths = forward_batch.seq_lens.numpy()
        rows = forward_batch.req_pool_indices.numpy()
        longest = int(lengths.max())
        slots = req_to_token.numpy()[rows, :longest]
        inside = np.arange(longest) < lengths[:, None]
        entries = self._store[np.where(inside, slots, 0)] * inside
        return np.asarray(entries.sum(axis=1))

    def load_weights(self, weights: Any) -> None:
        """Nothing to load."""


def _logits(last: _Ints) -> torch.Tensor:
    """Logits of shape (requests, vocabulary) from (history sum, last token) rows."""
    logits = np.full(
        (len(last), token_rule.VOCAB_SIZE), token_rule.NO_LOGIT, dtype=np.float32
    )
    rows = np.arange(len(last))
    for k in range(token_rule.CANDIDATES):
        column = token_rule.candidate(last[:, 0], last[:, 1], k)
        logits[rows, column] = token_rule.TOP_LOGIT - k * token_rule.LOGIT_STEP
    return torch.from_numpy(logits)


EntryClass = ToyPipelineForCausalLM
