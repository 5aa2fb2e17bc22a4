"""The recurrence of the ring: one slot's turn on every rank, again and again.

Written for two readers: plain Python over lists of lists, and Numba over arrays, with
the same floating-point operations in the same order, so both give the same times.

Evaluated on a slant: in step ``n`` rank ``p`` does its turn ``n - p``. All that a turn
needs from other ranks then comes from earlier steps, or from a lower rank (for rank 0:
the last) in the same step. What waits for what is in docs/simulator.md; the source is
SGLang 0.5.23, ``SchedulerPPMixin.event_loop_pp``.
"""

from typing import Any

# Rows of ``ranks``; each has one value per rank, seconds.
CPU = 0  # when the rank's scheduler thread is free
DEVICE = 1  # when the rank's device has done its last forward
STREAM = 2  # when all that is enqueued on its schedule stream is done
RELAY = 3  # when the requests of its present turn reach the next rank
PROXY_CPU = 4  # when it announced its hidden states to the next rank
PROXY_DATA = 5  # when those hidden states are there
STATE = 6
EXCHANGE = 6  # scratch: when its CPU comes to exchange outputs
SAVED = 7  # scratch: the first STATE rows, a lap ago
ROWS = SAVED + STATE

# Entries of ``costs``, seconds.
IDLE = 0  # CPU of any turn: take in requests, schedule
LAUNCH = 1  # CPU to launch a forward
PROCESS = 2  # CPU to process a result
HOP = 3  # tensors to the next stage
HOP_CPU = 4  # a message between the CPUs of two ranks
BACK = 5  # outputs from the last stage to the first, sampling latency included
COSTS = 6

# Orders of a turn.
LAUNCH_FIRST = 0  # without async depth: launch, then exchange outputs
EXCHANGE_FIRST = 1  # with async depth: exchange outputs, then launch
IDEAL = 2  # no CPU, no streams: data goes on as soon as it is there

# Laps count as equal when they differ by less than this, seconds per second of clock.
_ROUNDING = 1e-13


def run_turns(
    turn: int, count: int, until: float, order: int, costs: Any, ranks: Any, turns: Any
) -> tuple[int, int, float]:
    """Run up to ``count`` turns; each repeats the turn one lap before it.

    A lap that only shifts the state of the one before repeats for ever, so the rest is
    a jump.

    Args:
        turn: number of the first turn; its row and those before it are filled in.
        count: turns to run.
        until: stop before a turn that starts on rank 0 at this time or later.
        order: LAUNCH_FIRST, EXCHANGE_FIRST or IDEAL.
        costs: COSTS values.
        ranks: ROWS rows.
        turns: window over turns, by ``turn % len(turns)``: the stage time of each rank,
            then the end of the forward on the last rank, the same a lap ago (scratch),
            and 1.0 where the slot has a forward, else 0.0. Its length is
            slots + ranks + 1.

    Returns:
        Turns that passed; turns that were worked out: less, after a jump; when rank 0
        comes to its next turn.
    """
    cpu, device, stream = ranks[CPU], ranks[DEVICE], ranks[STREAM]
    relay, exchange = ranks[RELAY], ranks[EXCHANGE]
    proxy_cpu, proxy_data = ranks[PROXY_CPU], ranks[PROXY_DATA]
    last = len(cpu) - 1
    window = len(turns)
    lap = window - last - 2
    end, before, filled = last + 1, last + 2, last + 3
    hop, hop_cpu = costs[HOP], costs[HOP_CPU]
    passed = worked = 0
    while passed < count and cpu[0] < until:
        # --- Up to the exchange of outputs. Descending: reads the last step's values.
        for p in range(last, -1, -1):
            row = turns[(turn - p) % window]
            now = cpu[p]
            if p > 0 and relay[p - 1] > now:
                now = relay[p - 1]
            now += costs[IDLE]
            relay[p] = now + hop_cpu
            if row[filled] > 0.0:
                if p > 0:
                    now = max(now, proxy_cpu[p - 1] + hop_cpu)
                    stream[p] = max(stream[p], proxy_data[p - 1] + hop)
                if order != EXCHANGE_FIRST:
                    now += costs[LAUNCH]
                    device[p] = max(device[p], now, stream[p]) + row[p]
                    if p == last:
                        row[end] = device[p]
            exchange[p] = now

        # --- The exchange. Rank 0 waits for what the last rank sends in this very
        # step. Odd ranks receive before they send, even ones send before they receive.
        out = turns[(turn + 1 - lap) % window]
        sent, data = exchange[last], stream[last]
        if last % 2 == 1 and turns[(turn + 1 - lap - last) % window][filled] > 0.0:
            other = exchange[last - 1]
            sent = max(sent, other + hop_cpu)
            data = max(data, max(other, stream[last - 1]) + hop)
        announced = sent + hop_cpu
        data = max(sent, data, out[end]) + costs[BACK]
        if order == IDEAL:
            data = out[end] + costs[BACK]
        for p in range(last + 1):
            row = turns[(turn - p) % window]
            receives = turns[(turn - p + 1 - lap) % window][filled] > 0.0
            now, ready = exchange[p], stream[p]
            if order == IDEAL:
                # Only rank 0 waits for results, and hidden states go on at once.
                if p == 0 and receives:
                    now = max(now, data)
                cpu[p] = now
                proxy_data[p] = device[p]
                continue
            if p == last and p % 2 == 0 and out[filled] > 0.0:
                ready = max(ready, out[end])
            sent, leaves = now, ready
            if receives:
                now = max(now, announced)
                ready = max(ready, data)
                if p % 2 == 1:
                    sent, leaves = now, ready
            stream[p] = ready
            if p == last and p % 2 == 1 and out[filled] > 0.0:
                stream[p] = max(ready, out[end])
            announced = sent + hop_cpu
            data = max(sent, leaves) + hop
            if order == EXCHANGE_FIRST and row[filled] > 0.0:
                now += costs[LAUNCH]
                device[p] = max(device[p], now, stream[p]) + row[p]
                if p == last:
                    row[end] = device[p]
            if receives:
                now = max(now, ready) + costs[PROCESS]
            if row[filled] > 0.0 and p < last:
                stream[p] = max(stream[p], device[p])
                proxy_cpu[p] = now
                proxy_data[p] = max(now, stream[p])
            cpu[p] = now

        turn += 1
        passed += 1
        worked += 1
        if worked % lap == 0 and count - passed >= 2 * lap:
            # --- A lap is over: was it the last one, shifted?
            shift = cpu[0] - ranks[SAVED][0]
            near = _ROUNDING * cpu[0]
            # What was saved before this call may be several laps old.
            steady = shift > 0.0 and worked > lap
            for i in range(STATE):
                for p in range(last + 1):
                    value, old = ranks[i][p], ranks[SAVED + i][p]
                    # What stands still while all else moves on decides nothing.
                    if value != old and abs(value - old - shift) > near:
                        steady = False
                    ranks[SAVED + i][p] = value
            for i in range(1, lap + 1):
                row = turns[(turn - i) % window]
                if row[filled] > 0.0 and abs(row[end] - row[before] - shift) > near:
                    steady = False
                row[before] = row[end]
            if steady:
                laps = (count - passed) // lap - 1
                if (until - cpu[0]) / shift < laps + 1:
                    laps = int((until - cpu[0]) / shift) - 1
                if laps > 0:
                    for i in range(STATE):
                        for p in range(last + 1):
                            ranks[i][p] += laps * shift
                    for i in range(window):
                        turns[i][end] += laps * shift
                    passed += laps * lap

        # --- The next turn repeats the one a lap before it.
        row, model = turns[turn % window], turns[(turn - lap) % window]
        for p in range(last + 4):
            row[p] = model[p]
    return passed, worked, cpu[0]
