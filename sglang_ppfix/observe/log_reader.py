"""Logs in, pipelines out: sorts lines by server, run, data-parallel rank and stage."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from . import log_config
from .log_config import LogConfig
from .log_lines import (
    DECODE,
    PREFILL,
    STAMP,
    LineError,
    LineParser,
    Shape,
    head_of,
    rank_tags,
    source_of,
)
from .log_pipeline import PipelineLog, RankLog, Skipped
from .log_ranks import prefill_code
from .log_stream import StreamCount, read_blocks

_BATCH = b" batch"
_ANSWER = b' HTTP/1.1" 200'
_PLUGIN = b"ppfix "
_MARKS = (
    log_config.SERVER_ARGS,
    log_config.LIMITS,
    log_config.RETRACT,
    log_config.WEIGHTS,
    log_config.GRAPH_SIZES,
    *log_config.HANG_MARKS,
    _PLUGIN,
    _ANSWER,
)
_ASKS = re.compile(rb'"POST /(?:generate|v1/(?:chat/)?completions|v1/responses) ')
_SLOTS = re.compile(rb"#slots: (\d+(?:/\d+)*)")
_BUSY = re.compile(rb" busy: (\d+%(?:/\d+%)*)")
_DIGEST = re.compile(rb"#admission: (\d+).* digest: (\w+)")
#: Writers remembered at a time, and servers told apart in one input.
_MOST_ORIGINS = 4096
_MOST_SOURCES = 64
_REST = b"(others)"


@dataclass
class Run:
    """One start of one server."""

    source: str
    config: LogConfig = field(default_factory=LogConfig)
    pipelines: dict[tuple[frozenset[str], int], PipelineLog] = field(
        default_factory=dict
    )
    writers: set[tuple[tuple[str, int], ...]] = field(default_factory=set)


class _Source:
    """One stream of a mixed input: runs of a server, one after the other."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.runs = [Run(name)]
        # Arguments seen, and whether they start a run is not known yet.
        self.started: LogConfig | None = None
        self.new_file = False

    @property
    def run(self) -> Run:
        return self.runs[-1]

    @property
    def config(self) -> LogConfig:
        return self.started if self.started is not None else self.run.config

    def starting(self) -> LogConfig:
        """Configuration that a line of start-up belongs to."""
        if self.started is None and self.run.writers:
            self.started = LogConfig()
        return self.config

    def settle(self, writer: tuple[tuple[str, int], ...], second: float) -> None:
        """A batch line has come: does it belong to the run so far?"""
        known = writer in self.run.writers
        if known and (self.started is not None or self._overlaps(second)):
            self.runs.append(Run(self.name, self.started or LogConfig()))
            self.started = None
        elif not known and self.started is not None:
            # Another node of the same server, or a run that has just begun.
            self.run.config.merge(self.started)
            self.started = None
        self.new_file = False
        self.run.writers.add(writer)

    def _overlaps(self, second: float) -> bool:
        pipelines = self.run.pipelines.values()
        return self.new_file and any(second < p.last_second - 1.0 for p in pipelines)


class LogReader:
    """Reads any number of logs; ``runs`` holds what they say."""

    def __init__(self) -> None:
        self.count = StreamCount()
        self.skipped = Skipped()
        self.batch_lines = 0
        self._parser = LineParser()
        self._sources: dict[bytes, _Source] = {}
        self._origins: dict[bytes, RankLog] = {}

    def read(self, paths: Sequence[str]) -> None:
        """Read logs, oldest first whatever their order.

        Raises:
            LogInputError: one cannot be read.
        """
        for path in sorted(paths, key=_first_stamp) if len(paths) > 1 else paths:
            for source in self._sources.values():
                source.new_file = True
            self._origins.clear()
            for block in read_blocks(path, self.count):
                self._read_block(block)
        self.skipped.add("binary line", self.count.binary_lines)
        self.skipped.add("torn line", self._parser.torn)
        for pipeline in self.pipelines():
            pipeline.finish()

    def runs(self) -> list[Run]:
        """Runs that printed batch lines or arguments, in order of appearance."""
        return [
            run
            for source in self._sources.values()
            for run in source.runs
            if run.pipelines or run.config.args or run.config.kv_tokens
        ]

    def pipelines(self) -> list[PipelineLog]:
        """Every pipeline of every run."""
        return [p for run in self.runs() for p in run.pipelines.values()]

    def _read_block(self, block: bytes) -> None:
        """Read a block at once where all its batch lines have known shapes."""
        heads = block.count(DECODE) + block.count(PREFILL)
        marks = tuple(mark for mark in _MARKS if mark in block)
        if not heads and not marks:
            return
        known = self._parser.block_pattern(marks) if heads else None
        if known is not None:
            rows = known.pattern.findall(block)
            others = sum(1 for row in rows if row[-1]) if marks else 0
            if len(rows) - others == heads:
                self._read_rows(rows, known.shapes, bool(marks))
                return
        self._read_lines(block.split(b"\n"), marks)

    def _read_rows(
        self,
        rows: list[tuple[bytes, ...]],
        shapes: tuple[Shape, ...],
        marked: bool,
    ) -> None:
        place_of, clock = self._origins.get, self._parser.clock.second
        last, second = b"", 0.0
        for row in rows:
            if marked and row[-1]:
                self._marked_line(row[-1])
                continue
            origin = row[0] + row[3]
            try:
                if row[1] != last or row[2]:
                    last, second = row[1], clock(row[1], row[2])
                place = place_of(origin) or self._place(origin, second)
                for decode, first, seqs, tokens, busy, pick in shapes:
                    running = row[first]
                    if not running:
                        continue
                    if place.lead or row[busy]:
                        place.add(decode, second, pick(row))
                    else:
                        size = int(running)
                        if not decode:
                            size = prefill_code(int(row[seqs]), int(row[tokens]), size)
                        place.code(size)
                        place.time(second)
                    break
            except LineError as error:
                self.skipped.add(str(error))
            except ValueError:
                self.skipped.add("bad number")
            else:
                self.batch_lines += 1

    def _read_lines(self, lines: list[bytes], marks: tuple[bytes, ...]) -> None:
        for line in lines:
            if _BATCH in line and (DECODE in line or PREFILL in line):
                try:
                    kind, origin, second, values = self._parser.parse(line)
                    place = self._origins.get(origin) or self._place(origin, second)
                    place.add(kind == DECODE, second, values)
                except LineError as error:
                    self.skipped.add(str(error))
                except ValueError:
                    self.skipped.add("bad number")
                else:
                    self.batch_lines += 1
            elif any(mark in line for mark in marks):
                self._marked_line(line)

    def _marked_line(self, line: bytes) -> None:
        self._other(next(mark for mark in _MARKS if mark in line), line)

    def _place(self, origin: bytes, second: float) -> RankLog:
        """Where the lines of a writer go that is new, or new in this run."""
        if len(self._origins) >= _MOST_ORIGINS:
            # A log collector's time stamps make every line's origin a new one.
            self._origins.clear()
        tags = rank_tags(origin)
        source = self._source(origin)
        before = len(source.runs)
        source.settle(tuple(tags.items()), second)
        if len(source.runs) > before:
            self._origins.clear()
        run = source.run
        key = frozenset(tags), tags.get("DP", 0)
        pipeline = run.pipelines.get(key)
        if pipeline is None:
            pipeline = run.pipelines[key] = PipelineLog(run.config, self.skipped)
            pp_size = run.config.args.get("pp_size")
            pipeline.plain = b"[" in origin
            if "PP" not in tags and isinstance(pp_size, int):
                pipeline.copies = pp_size
        return self._origins.setdefault(origin, pipeline.rank(tags.get("PP", 0)))

    def _source(self, origin: bytes) -> _Source:
        name = source_of(origin)
        if len(self._sources) >= _MOST_SOURCES:
            name = next((key for key in self._sources if key == name), _REST)
        found = self._sources.get(name)
        if found is None:
            found = _Source(name.decode("utf-8", "replace"))
            self._sources[name] = found
        return found

    def _other(self, mark: bytes, line: bytes) -> None:
        head = head_of(line)
        source = self._source(head)
        if mark == _ANSWER:
            if _ASKS.search(line):
                for pipeline in source.run.pipelines.values():
                    pipeline.http_answer()
            return
        tags = rank_tags(line[len(head) : line.find(mark)])
        if mark == _PLUGIN:
            self._plugin_line(source, tags, line)
            return
        if mark in (log_config.SERVER_ARGS, log_config.LIMITS):
            # Which run it belongs to shows when the next batch line comes.
            source.starting()
            self._origins.clear()
        source.config.read_line(line, tags.get("PP", 0), tags.get("TP", 0))
        if mark == log_config.RETRACT:
            self._retracted(source, tags, line)

    @staticmethod
    def _retracted(source: _Source, tags: dict[str, int], line: bytes) -> None:
        """Every rank says it: count what the lead of the pipeline says."""
        number = log_config.retracted_requests(line)
        for (names, dp_rank), pipeline in source.run.pipelines.items():
            if names != frozenset(tags) or pipeline.copies > 1:
                pipeline.retracted(None)
            elif dp_rank != tags.get("DP", 0) or tags.get("TP", 0):
                continue
            elif number is None or _is_lead(pipeline, tags):
                pipeline.retracted(number)

    @staticmethod
    def _plugin_line(source: _Source, tags: dict[str, int], line: bytes) -> None:
        pipeline = source.run.pipelines.get((frozenset(tags), tags.get("DP", 0)))
        if pipeline is None:
            return
        digest = _DIGEST.search(line)
        if digest:
            pipeline.plugin_digest(tags.get("PP", 0), int(digest[1]), digest[2])
        if not _is_lead(pipeline, tags):
            return
        slots, busy = _SLOTS.search(line), _BUSY.search(line)
        if slots:
            pipeline.plugin_slots(tuple(int(n) for n in slots[1].split(b"/")))
        if busy:
            pipeline.plugin_busy([float(n[:-1]) for n in busy[1].split(b"/")])


def _is_lead(pipeline: PipelineLog, tags: dict[str, int]) -> bool:
    return pipeline.lead is not None and pipeline.lead.number == tags.get("PP", 0)


def _first_stamp(path: str) -> bytes:
    """First time stamp of a file, for sorting; standard input comes last."""
    if path == "-":
        return b"~"
    for block in read_blocks(path, StreamCount()):
        found = STAMP.search(block)
        return found[1].replace(b"T", b" ") if found else b""
    return b""
