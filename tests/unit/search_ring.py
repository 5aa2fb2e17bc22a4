"""A ring whose best number of slots is known, for the search to find.

It is emulated by the law: the busiest stage or the host works off every filled slot, a
micro-batch passes all stages, all with noise that has a slow part, as on a shared
machine. ``benchmarks/auto`` does the same with real SGLang.
"""

import math
import random

from sglang_ppfix.policy import SlotSearch, View, target_slots

STAGES = 4
LOOK = 16
MEMORY = 0.99


def steep(size):
    return 20 + 10 * size


def flat(_size):
    return 40.0


def kimi(size):
    """Experts of 384 that ``size`` requests of top-8 touch."""
    return 8 + 0.2 * 384 * (1 - (1 - 8 / 384) ** size)


def host(_size):
    return 2.0


class Ring:
    """Requests in slots, and how long their lap takes, ms.

    Args:
        stage: decode time of every stage by micro-batch size, ms.
        slot_ms: time that a filled slot costs the host.
        seed: of the noise.
        noise: standard deviation of a lap.
        drift: standard deviation of a slow part, which forgets in about 100 laps.
        stages: pipeline stages.
        depth: further slots of the ring.
        shared: what every further busy stage adds to the times of all, as a part.
    """

    def __init__(
        self,
        stage,
        slot_ms,
        seed=1,
        noise=0.03,
        drift=0.03,
        stages=STAGES,
        depth=0,
        shared=0.0,
    ):
        self.stages = stages
        self.depth = depth
        self._alone = stage
        self._shared = shared
        self.slot_ms = slot_ms
        self.most = stages + depth
        self.widest = target_slots(stages, depth)
        self.slots = self.widest
        self.laps = 0
        self.seconds = 0.0
        self.changes = []
        self.sizes = [0] * self.most
        self.prompt_ms = 0.0
        self.search = SlotSearch()
        self.seen = {}
        self._random = random.Random(seed)
        self._noise = noise
        self._drift = drift
        self._slow = 0.0

    def best(self, demand):
        """The shortest lap of all numbers of slots."""
        return min(self.lap(demand, f) for f in range(1, min(self.most, demand) + 1))

    def stage(self, size, filled):
        """Time of every stage while that many of them are busy."""
        return self._alone(size) * (1 + self._shared * (min(filled, self.stages) - 1))

    def lap(self, demand, filled):
        """Mean lap with that many slots filled."""
        time = self.stage(-(-demand // filled), filled)
        passes = self.stages
        if self.depth and filled > 2:
            # docs/law.md: from the third slot on each waits for a turn of the ring.
            passes += min(filled - 2, self.depth)
        return max(filled * max(time, self.slot_ms), passes * time + 2) + (
            filled * self.slot_ms / 4
        )

    def burst(self, clients, tokens):
        """Requests that fill the slots evenly and end together."""
        filled = min(self.slots, clients)
        self.sizes = [clients // filled + (n < clients % filled) for n in range(filled)]
        for number in range(tokens):
            self._lap(number > 1, self.prefill(clients, filled) * (number == 1))

    def closed(self, clients, laps, life):
        """Requests that end one by one; each one that follows goes by the share, and
        the slot that takes it in decodes nothing in that lap. Tokens per second."""
        left = [[] for _ in range(self.most)]
        tokens, begin_s = 0, self.seconds
        for lap in range(laps):
            fresh = [0] * self.most
            for _ in range(clients - sum(map(len, left))):
                slot = min(range(self.slots), key=lambda n: len(left[n]))
                most = self._random.randint(life // 2, life) if lap else life
                left[slot].append(most)
                fresh[slot] += 1
            self.sizes = list(map(len, left))
            made = sum(new or len(s) for new, s in zip(fresh, left, strict=True))
            for slot, new in zip(left, fresh, strict=True):
                first = len(slot) - new if new else 0
                slot[first:] = [tokens - 1 for tokens in slot[first:]]
                slot[:] = [tokens for tokens in slot if tokens]
            tokens += made
            self._lap(not any(fresh), made=made)
        return tokens / (self.seconds - begin_s)

    def poisson(self, mean, laps, life):
        """Requests at random laps, ``mean`` in flight; laps of trials among them."""
        left = [[] for _ in range(self.most)]
        trials = 0
        for _ in range(laps):
            fresh = [0] * self.most
            while self._random.random() > math.exp(-mean / life):
                slot = min(range(self.slots), key=lambda n: len(left[n]))
                left[slot].append(self._random.randint(life // 2, 3 * life // 2))
                fresh[slot] += 1
            self.sizes = [len(slot) for slot in left]
            if not any(self.sizes):
                continue
            made = sum(new or len(s) for new, s in zip(fresh, left, strict=True))
            for slot, new in zip(left, fresh, strict=True):
                first = len(slot) - new if new else 0
                slot[first:] = [tokens - 1 for tokens in slot[first:]]
                slot[:] = [tokens for tokens in slot if tokens]
            self._lap(not any(fresh), made=made)
            trials += self.search._trial is not None
        return trials

    def prefill(self, clients, filled):
        """What the prompts of a burst add to a lap: they pass the stages in turn."""
        return (self.stages + filled - 1) * self.prompt_ms * clients / filled

    def _lap(self, timed, more_ms=0.0, made=None):
        self.laps += 1
        live = sum(self.sizes)
        filled = sum(size > 0 for size in self.sizes)
        for size in self.sizes:
            self.seen[size] = self.stage(size, filled) * self._random.gauss(1, 0.01)
        self.seen.pop(0, None)
        step = self._drift * math.sqrt(1 - MEMORY**2)
        self._slow = MEMORY * self._slow + self._random.gauss(0, step)
        noise = (1 + self._slow) * self._random.gauss(1, self._noise)
        seconds = self.lap(live, filled) * noise / 1e3
        seconds += more_ms / 1e3
        self.seconds += seconds
        made = live if made is None else made
        decode_s = seconds if timed else None
        self.search.end_lap(self.laps, self.slots, self.sizes, made, decode_s, seconds)
        if self.laps % LOOK == 0:
            self._look()

    def _look(self):
        view = View(
            self.slots,
            self.most,
            self.widest,
            None,
            [dict(self.seen)] * self.stages,
        )
        move = self.search.look(view)
        if move is not None and move.slots != self.slots:
            self.changes.append((self.laps, move.slots))
            self.slots = move.slots
