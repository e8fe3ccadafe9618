r"""Read a training's progress from the lines of rank 0's log: its step, epoch, rate and metrics.

Pure. Wrong is worse than nothing: a line that may be two things is neither. Bars of anything else than the training
(data, downloads, validation) are ignored, and so is a bar without a description until a line with the training's loss
appears between two of its states. Each state of a bar that overwrites itself is a line of its own here.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.containment import contained
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.logs import last_state, nanoseconds
from ptjob_provider.core.status import parse_instant
from ptjob_provider.core.versions import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ptjob_provider.core.logs import LogCursor, LogLine

MAX_LINE = 2000
"""Characters at the beginning of a line that are looked at."""

MAX_PATTERN = 500
MAX_METRICS = 16

_LOSSES = (
    *("loss", "train_loss", "training_loss", "train/loss", "loss_train", "total_loss", "lm_loss", "reduced_train_loss"),
    *("avg._loss", "avg_loss", "avr_loss", "step_loss", "train_loss_step", "train_loss_epoch"),
)
"""Tags that mean the training's loss, the best first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress(Record):
    """State of a training at one moment, as its log says.

    Attributes:
        step: the last step, as written: frameworks count from 0 or from 1.
        total: the number that `step` counts to: of the whole training, or of each epoch.
        epoch: the epoch as written; Hugging Face's Trainer writes fractions.
        epochs: number of epochs.
        rate: steps per second, as written or as measured from the timestamps of the log.
        eta: seconds until `step` reaches `total`, at the rate measured from the log, pauses included.
        metrics: tag → last value.
        at: timestamp of the line, RFC 3339; of a bar's state, see `ProgressReader.take`.
        source: what wrote the step: `progress=`, `json`, `bar` or `line`; "" before the first step. `trainerStatus`:
            Kubeflow Trainer reports it, and steps are percent.
    """

    step: int | None = None
    total: int | None = None
    epoch: float | None = None
    epochs: int | None = None
    rate: float | None = None
    eta: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    at: str = ""
    source: str = ""

    @property
    def loss(self) -> float | None:
        """The training's loss; None if it is unknown."""
        values = {_plain(tag): value for tag, value in self.metrics.items()}
        return next((values[tag] for tag in _LOSSES if tag in values), None)


def progress_text(progress: Progress | None) -> str:
    """Return a state in words: epoch, step, percent, rate, time until the step's total, loss; "" if it is unknown."""
    if progress is None:
        return ""
    parts = [epoch_text(progress)]
    if progress.step is not None:
        of = f"/{progress.total} ({progress.step / progress.total:.0%})" if progress.total else ""
        parts.append(f"step {progress.step}{of}")
    if progress.rate:
        parts.append(f"{progress.rate:.3g} steps/s" if progress.rate >= 1 else f"{1 / progress.rate:.3g} s/step")
    if progress.eta is not None:
        parts.append(f"{timedelta(seconds=round(progress.eta))} to step {progress.total}")
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:.4g}")
    return " · ".join(filter(None, parts))


def is_loss(tag: str) -> bool:
    """Return whether a metric's tag means the training's loss."""
    return _plain(tag) in _LOSSES


def epoch_text(progress: Progress) -> str:
    """Return `epoch 3/12`; "" if it is unknown."""
    of = f"/{progress.epochs}" if progress.epochs else ""
    return f"epoch {progress.epoch:g}{of}" if progress.epoch is not None else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading(Progress):
    """Statement of one line about a training.

    Attributes:
        source: see `Progress`.
        elapsed: seconds since the bar began, as it says.
        is_bare: a bar without a description.
        needs_epoch: a bar that an evaluation writes, too: it is the training's once after each line of an epoch.
        is_heading: the line begins an epoch.
    """

    source: str = "line"
    elapsed: int | None = None
    is_bare: bool = False
    needs_epoch: bool = False
    is_heading: bool = False

    @property
    def is_possible(self) -> bool:
        """Return whether the numbers are of a training: a log may have any."""
        numbers = (self.step, self.total, self.epoch, self.epochs, self.rate)
        return all(number is None or abs(number) < _MOST for number in numbers)


_MOST = 10**12

_RANKS = {"progress=": 0, "json": 1, "bar": 2, "line": 3, "": 4}
"""Sources of steps; the first of them that speaks is believed."""

_INT = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?![.,]?\d|\w)"
_FLOAT = r"(?:[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf)\b)"
_VALUE = rf"(?P<value>{_FLOAT})(?![\w:%/]|\.\d)"
_WORD = r"(?<![\w./])[A-Za-z][\w./]{0,39}"
_TAG = rf"{_WORD}(?: loss)?|(?<![\w./])loss [a-z]+"
_PAIR = re.compile(rf"""(?i)(?P<tag>{_TAG})["'\]]? {{0,3}}[:=] {{0,8}}["']?{_VALUE}""")
_LOSS = re.compile(rf"(?i)(?P<tag>(?:\b[a-z.]{{1,39}} )?(?<![\w./])[\w./]*loss) {_VALUE}")
"""A loss and its value with only a space between them."""

_OF_EVALUATION = re.compile(r"(?i)(?:val|valid|validation|eval|evaluation|test|dev|predict)(?![a-z])")
_RESULT = re.compile(r"(?i)loss|acc|ppl|perplexity|reward|grad_norm")
"""Parts of tags of a training's results: an object without them may be its settings."""

_OTHER_LINE = re.compile(
    r"(?i)\b(?:val(?:id\w*)?|eval\w*|test(?:ing)?|sanity|warm-?up|infer\w*|predict\w*|averaged stats|total time"
    r"|sav(?:e|ed|ing)|resum\w*|(?:down|up)?load\w*|(?<!/)checkpoint\w*)\b"
)
_OTHER_BAR = re.compile(
    r"(?i)val|eval|test|sanity|predict|infer|sampl|warm|token|load|fetch|map|filter|generat|scan|sav|cach|split|shard|file"
    r"|data|index|convert|pack|truncat|appl|extract|build|read|writ|copy|prepar|process|comput|encod|featur"
)
_TRAINING_BAR = re.compile(r"(?i)\b(?:train(?:ing)?|epoch|steps?|iter(?:ation)?s?|batch(?:es)?)\b")
_LOOKS_LIKE_PROGRESS = re.compile(r"(?i)\d%|\d ?/ ?\d|loss|epoch|step|iter|batch|\bep\b")

_BAR = re.compile(
    rf"(?<!\d)\d{{1,3}}%(?:\|[^|]*\|| |\ *[━╸╺─]+\ )\ *(?P<step>{_INT})\ ?/\ ?(?P<total>{_INT})"
    rf"(?:\ \[(?P<elapsed>[\d:]+)<[^,\]]*,\ *(?:(?P<speed>[\d.]+)|\?)\ ?(?P<unit>[^\],]*)"
    rf"|\ (?P<fast>[\d.]+)it/s|\ [\d:]+\ *$)"
)
_BAR_BEGINS = re.compile(r"\d%\||\d%\s+\S+/\S+ \[|\d%\s*[━╸╺─]")
_UNITS: Mapping[str, Callable[[float], float]] = {
    **dict.fromkeys(("it/s", "batch/s", "step/s", "steps/s"), lambda value: value),
    **dict.fromkeys(("s/it", "s/batch", "s/step"), lambda value: 1 / value),
}
"""Units of the bar of a training: a unit such as `B/s` or `examples/s` is not a step."""

_KERAS_BAR = re.compile(rf"^\s*(?P<step>{_INT})/(?P<total>{_INT}) (?:\[[=>. ]+\]|━[━ ]*|- \d+s )")
_ULTRALYTICS = re.compile(r"^\s*(?P<epoch>\d+)/(?P<epochs>\d+)\s+[\d.]+[KMG]\s+(?:[\d.e+-]+\s+){2,9}\d+:\s*$")
_TORCHTUNE = re.compile(rf"^(?P<epoch>\d+)\|\d+\|Loss: {_FLOAT}:?\s*$")
_EPOCH = re.compile(rf"(?i)\bep(?:och)?[\s:=#\[\]]+(?P<epoch>{_INT})(?:\s*(?:/|of)\s*(?P<epochs>{_INT}))?")
_STEP = re.compile(
    rf"(?i)(?<![\w/.])(?:global_?)?(?:step|iter|iteration|batch)(?:\(train\))?[\s:=#\[\]]+"
    rf"(?P<step>{_INT})(?:\s*(?:/|of)\s*(?P<total>{_INT}))?"
)
_ONLY_STEP = re.compile(r"(?i)\b(?:step|iter|iteration|batch)\W{0,3}\d+ ?/ ?\d+\W*$")
_EPOCH_AND_STEP = re.compile(
    r"(?i)\b(?:epoch|train)(?:\(train\))?\s*:?\s*\[?\s*(?P<epoch>\d+)(?:\s*/\s*(?P<epochs>\d+))?(?:\s*\(\s*\d+%\))?"
    rf"[\]\s:,]+\[?\s*(?P<step>{_INT})\s*/\s*(?P<total>{_INT})"
)
_HEADING = re.compile(r"(?i)^\W*epoch\s*:?\s*\[?(?P<epoch>\d+)\s*(?:/|of)\s*(?P<epochs>\d+)\W*$")
_OBJECT = re.compile(r"^[^{}]{0,60}(?P<object>\{[^{}]*\})\s*$")
_FIELDS = {
    **dict.fromkeys(("step", "global_step", "current_steps", "iter", "iteration"), "step"),
    **dict.fromkeys(("total_steps", "max_steps"), "total"),
    "epoch": "epoch",
    **dict.fromkeys(("epochs", "num_epochs", "total_epochs"), "epochs"),
}
"""Keys of JSON objects → fields."""


def read_line(text: str) -> Reading | None:
    """Return what a line says about a training; None if it says nothing, or if it may be something else."""
    text = text[:MAX_LINE]
    if not _LOOKS_LIKE_PROGRESS.search(text):
        return None
    match, read = next((match, read) for matches, read in _TABLE if (match := matches(text)))
    reading = read(text, match)
    return reading and replace(reading, metrics=_finite(reading.metrics))


def _object(_: str, match: re.Match[str]) -> Reading | None:
    """Read a JSON object, or a dict as Hugging Face's Trainer prints it."""
    named: dict[str, Any] = {}
    metrics = _values_of(match["object"])
    for key in _FIELDS.keys() & metrics.keys():
        name, value = _FIELDS[key], metrics.pop(key)
        if named.setdefault(name, value if name == "epoch" else int(value)) != value:
            return None
    is_told = any(_RESULT.search(tag) and not _OF_EVALUATION.match(tag) for tag in metrics)
    if not named or not (is_told or {"step", "total"} <= named.keys()):
        return None
    return Reading(source="json", metrics=metrics, **named)


def _values_of(text: str) -> dict[str, float]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = {match["tag"]: match["value"] for match in _PAIR.finditer(text)}
    return {key: number for key, value in found.items() if (number := _number(value)) is not None}


def _bar(text: str, _: re.Match[str]) -> Reading | None:
    """Read a tqdm bar, also as Lightning, torchtune and ultralytics write it."""
    match = _BAR.search(text)
    unit = (match["unit"] or "it/s").strip() if match else ""
    if match is None or unit not in _UNITS:
        return None
    before = text[: match.start()]
    heading = before.strip("\x1b[A \t")
    framework = _ULTRALYTICS.match(before) or _TORCHTUNE.match(heading)
    is_known = framework or not heading or _TRAINING_BAR.search(heading)
    if not is_known or _OTHER_BAR.search(heading):
        return None
    bar = replace(_fields(match), source="bar", is_bare=not heading)
    speed = _number(match["speed"] or match["fast"] or 0)
    behind = text[match.end() :]
    metrics = _metrics(behind.rpartition("]")[0] or behind) | _metrics(heading.rstrip(": "))
    epoch = _named(framework) if framework else _epoch(heading)
    rate, elapsed = _UNITS[unit](speed) if speed else None, _seconds(match["elapsed"])
    return replace(bar, rate=rate, elapsed=elapsed, metrics=metrics, **epoch)


def _keras_bar(text: str, match: re.Match[str]) -> Reading | None:
    return replace(_fields(match), source="bar", metrics=_metrics(text[match.end() :]), needs_epoch=True)


def _heading(_: str, match: re.Match[str]) -> Reading | None:
    return replace(_fields(match), is_heading=True)


def _line(text: str, _: re.Match[str]) -> Reading | None:
    """Read a line with the words "epoch" and "step", or similar ones, and metrics."""
    metrics, rest = _metrics(text), _LOSS.sub(" ", _PAIR.sub(" ", text))
    if _OTHER_LINE.search(rest) or not (_is_of_training(metrics) or not metrics):
        return None
    if both := _EPOCH_AND_STEP.search(text):
        return replace(_fields(both), metrics=metrics)
    steps = [_fields(match) for match in _STEP.finditer(text)]
    if len({each.step for each in steps}) > 1 or len({each.total for each in steps if each.total is not None}) > 1:
        return None
    step = next((each for each in steps if each.total is not None), steps[0] if steps else Reading())
    epoch = _epoch(text)
    is_whole = bool(epoch) or _ONLY_STEP.search(text) is not None
    if not (step.step is not None or epoch if metrics else step.step is not None and is_whole):
        return None
    return replace(step, **epoch, metrics=metrics)


_TABLE: tuple[tuple[Callable[[str], re.Match[str] | None], Callable[[str, re.Match[str]], Reading | None]], ...] = (
    (_OBJECT.match, _object),
    (_BAR_BEGINS.search, _bar),
    (_KERAS_BAR.match, _keras_bar),
    (_HEADING.match, _heading),
    (_LOOKS_LIKE_PROGRESS.search, _line),
)
"""Forms of lines and their readers; the first form that matches decides, also if its reader returns None. The last
form matches every line that is looked at."""


def _named(match: re.Match[str]) -> dict[str, Any]:
    fields = ("step", "total", "epoch", "epochs")
    return {name: _int(text) for name, text in match.groupdict().items() if name in fields}


def _fields(match: re.Match[str]) -> Reading:
    return Reading(**_named(match))


def _epoch(text: str) -> dict[str, Any]:
    """Return the epoch in a text; nothing if there are two."""
    found = {(match["epoch"], match["epochs"]) for match in _EPOCH.finditer(text)}
    if len(found) != 1:
        return {}
    ((epoch, epochs),) = found
    return {"epoch": _int(epoch), "epochs": _int(epochs)}


def _metrics(text: str) -> dict[str, float]:
    found = {match["tag"]: float(match["value"]) for match in _LOSS.finditer(text)}
    found |= {match["tag"]: float(match["value"]) for match in _PAIR.finditer(text)}
    return {tag: value for tag, value in found.items() if _plain(tag) not in _NO_METRICS}


_NO_METRICS = {
    *("epoch", "ep", "step", "global_step", "micro_step", "iter", "iteration", "batch", "total", "rank", "v_num"),
}


def _is_of_training(metrics: Mapping[str, float]) -> bool:
    return any(not _OF_EVALUATION.match(tag) for tag in metrics)


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    return dict([pair for pair in metrics.items() if math.isfinite(pair[1])][:MAX_METRICS])


def _plain(tag: str) -> str:
    return tag.lower().replace(" ", "_")


def _int(text: str | None) -> int | None:
    return int(text.replace(",", "")) if text else None


def _seconds(text: str | None) -> int | None:
    """Return the seconds of `1:02:03`, as tqdm writes them; None if there is another text."""
    if not text or not re.fullmatch(r"(?:\d{1,4}:)?\d{1,2}:\d\d", text):
        return None
    seconds = 0
    for part in text.split(":"):
        seconds = 60 * seconds + int(part)
    return seconds


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


@contained(lambda _why, _job: None)
def of_trainer(job: Mapping[str, Any]) -> Progress | None:
    """Return the progress in a TrainJob's `status.trainerStatus` (KEP-2779 of Kubeflow Trainer); None if it has none.

    Trainer keeps it, behind an alpha gate, for programs that report. Its values are texts, its time has whole seconds.
    """
    told = (job.get("status") or {}).get("trainerStatus") or {}
    percent, eta, at = (
        told.get(name) for name in ("progressPercentage", "estimatedRemainingSeconds", "lastUpdatedTime")
    )
    values = {str(each["name"]): _number(each["value"]) for each in told.get("metrics") or ()}
    metrics = _finite({tag: value for tag, value in values.items() if value is not None})
    instant = parse_instant(at)
    if instant is None or (percent is None and eta is None and not metrics):
        return None
    total, at = None if percent is None else 100, instant.isoformat()
    return Progress(step=percent, total=total, eta=eta, metrics=metrics, at=at, source="trainerStatus")


class LinePattern:
    """A regular expression of the user, which says what its named groups are.

    RE2 matches in a time that grows with the line's length only, whatever the pattern: Python's own `re` needs hours
    for `(a+)+$` on a line of 40 characters, and holds the interpreter's lock meanwhile.

    Attributes:
        text: the pattern; its groups are named step, total, epoch, epochs, or as a metric.

    Raises:
        InvalidSpec: it cannot be used.
    """

    def __init__(self, text: str) -> None:
        import re2  # noqa: PLC0415 - only whoever has a pattern of his own loads it

        self.text = text
        if len(text) > MAX_PATTERN:
            raise InvalidSpec.at("progress", f"{len(text)} characters; allowed: {MAX_PATTERN}")
        options = re2.Options()
        options.log_errors = False
        try:
            self._compiled = re2.compile(text, options)
        except re2.error as error:
            reason = error.args[0].decode() if isinstance(error.args[0], bytes) else error
            raise InvalidSpec.at("progress", f"{text!r} is not a regular expression of RE2: {reason}") from error
        if not self._compiled.groupindex:
            raise InvalidSpec.at(
                "progress",
                f"{text!r} has no named group; allowed: (?P<step>…), total, epoch, epochs, and names of metrics",
            )

    def read(self, text: str) -> Reading | None:
        """Return what a line says; None if it does not match."""
        match = self._compiled.search(text[:MAX_LINE])
        found = match.groupdict() if match else {}
        values = {name: number for name, value in found.items() if (number := _number(value)) is not None}
        if not values:
            return None
        whole: dict[str, Any] = {name: int(values.pop(name)) for name in ("step", "total", "epochs") if name in values}
        return Reading(source="progress=", epoch=values.pop("epoch", None), metrics=values, **whole)


def line_pattern(field: str, value: Any) -> LinePattern:
    """Parse a pattern of the user."""
    if not isinstance(value, str):
        raise InvalidSpec.of(field, value, "allowed: a regular expression of RE2 as a text")
    return LinePattern(value)


_BELIEVED_AFTER = 3
"""Number of lines in a row, each with a later step than the one before, after which a smaller step is believed."""


class ProgressReader:
    """Follows a training through the lines of rank 0's log.

    Args:
        pattern: the user's pattern, instead of those that are built in.

    Attributes:
        progress: the newest state; None if no line has said anything.
    """

    def __init__(self, pattern: LinePattern | None = None) -> None:
        self._read = pattern.read if pattern else read_line
        self._run: tuple[str, int] | None = None
        self._begin()

    def _begin(self) -> None:
        self.progress: Progress | None = None
        self._bare: Reading | None = None
        self._in_epoch = False
        self._doubted: list[int] = []
        self._first: tuple[int, int, int | None] | None = None
        self._timed: tuple[str, int] | None = None

    def resume(self, progress: Progress, cursor: LogCursor) -> None:
        """Go on from the state after the line at the cursor."""
        self.progress, self._run = progress, (cursor.pod_uid, cursor.restart_count)

    def feed(self, line: LogLine) -> Progress | None:
        """Take the next line, and return the newest state.

        A container that was started again begins a new training.
        """
        run = line.cursor.pod_uid, line.cursor.restart_count
        if run != self._run:
            self._run = run
            self._begin()
        if not line.notice:
            self.take(last_state(line.text), line.timestamp)
        return self.progress

    def take(self, text: str, at: str) -> Reading | None:
        """Take one line, and return what was believed of it.

        Args:
            text: the line, or the last state of a line that overwrites itself.
            at: its timestamp. A node gives all states of a line that has not ended that of the first ones: the state
                of a bar is as much later as the bar says.
        """
        reading = self._read(text)
        if reading is None or not reading.is_possible or not self._is_of_training(reading):
            return None
        if reading.elapsed is not None:
            at = self._time_of(reading.elapsed, at)
        if reading.step is None:
            self._confirm_bare(reading, at)
        self._merge(reading, at)
        return reading

    def _time_of(self, elapsed: int, at: str) -> str:
        """Return when a bar's state was written."""
        line, before = self._timed or ("", 0)
        self._timed = at, elapsed
        now = self.progress
        if now is None or nanoseconds(now.at) < nanoseconds(at):
            return at
        passed = 0 if line != at else elapsed - before if elapsed >= before else elapsed
        return (datetime.fromisoformat(now.at) + timedelta(seconds=passed)).isoformat()

    def _is_of_training(self, reading: Reading) -> bool:
        if reading.is_heading:
            self._in_epoch = True
        if reading.needs_epoch:
            if not self._in_epoch:
                return False
            self._in_epoch = reading.step != reading.total
        if reading.is_bare and not self._is_known_bar(reading):
            self._bare = reading
            return False
        return reading.step is None or self._goes_on(reading)

    def _is_known_bar(self, reading: Reading) -> bool:
        now = self.progress
        is_current = now is not None and now.source == "bar" and now.total == reading.total
        return is_current or reading.loss is not None

    def _confirm_bare(self, reading: Reading, at: str) -> None:
        """Believe that the last bar is the training's: it has not ended, and the training's loss is written."""
        bare, self._bare = self._bare, None
        if bare and bare.step != bare.total and reading.loss is not None and self._goes_on(bare):
            self._merge(bare, at)

    def _goes_on(self, reading: Reading) -> bool:
        """Return whether the step is of the same training: of the best source, and not of another bar."""
        now = self.progress
        if now is None or now.step is None or reading.step is None:
            return True
        if _RANKS[reading.source] != _RANKS[now.source]:
            return _RANKS[reading.source] < _RANKS[now.source]
        begins = now.step >= (now.total or math.inf) or (
            reading.epoch is not None and now.epoch is not None and reading.epoch > now.epoch
        )
        if reading.total is not None and now.total is not None and reading.total != now.total:
            return begins and not reading.is_bare
        if begins or reading.step >= now.step:
            self._doubted = []
            return True
        if self._doubted and reading.step <= self._doubted[-1]:
            self._doubted = []
        self._doubted.append(reading.step)
        return len(self._doubted) >= _BELIEVED_AFTER

    def _merge(self, reading: Reading, at: str) -> None:
        now = self.progress or Progress()
        metrics = dict([*{**now.metrics, **reading.metrics}.items()][-MAX_METRICS:])
        epoch = now.epoch if reading.epoch is None else reading.epoch
        self.progress = replace(now, epoch=epoch, epochs=reading.epochs or now.epochs, metrics=metrics, at=at)
        if reading.step is not None:
            total = reading.total or (now.total if now.source == reading.source else None)
            measured = self._measured(now.step, reading.step, at, reading.elapsed)
            rate, lasting = reading.rate or measured, measured or reading.rate
            left = max(total - reading.step, 0) / lasting if total and lasting else _MOST
            eta = left if left < _MOST else None
            state = replace(self.progress, step=reading.step, total=total, source=reading.source)
            self.progress = replace(state, rate=rate, eta=eta)
        elif reading.is_heading:
            self.progress = replace(self.progress, step=None, eta=None)
        elif now.eta is not None:  # it counts from `at`, and the step may be minutes older
            passed = max(nanoseconds(at) - nanoseconds(now.at), 0) / 1e9
            self.progress = replace(self.progress, eta=max(now.eta - passed, 0))

    def _measured(self, before: int | None, step: int, at: str, elapsed: int | None) -> float | None:
        """Return the steps per second since the first step, or since the step was set back.

        What comes before the first step has ended, such as a compilation, is not repeated. A bar's own clock, in whole
        seconds, is right where a node hands its states over late.
        """
        now = nanoseconds(at)
        if not self._first or not before or step < before:
            self._first = step, now, elapsed
        first, then, began = self._first
        passed = (now - then) / 1e9
        if elapsed is not None and began is not None and elapsed > began and abs(elapsed - began - passed) > 1:
            passed = elapsed - began
        return (step - first) / passed if passed > 0 and step > first else None
