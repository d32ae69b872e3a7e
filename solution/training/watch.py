"""Show the progress of fits: bars for many experiments, a table for one, plain lines in a log.

A fit is the training of one model. The kind of a model is its experiment and its collections; a
model's name begins with its kind.
"""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from rich.live import Live
from rich.progress import Progress
from rich.table import Table

from solution.system.progress import bars, console
from solution.system.report import FitProgress, Report, silent
from solution.system.terminal import make_table
from solution.system.wording import spell


@dataclass
class FitLine:
    """The progress of one fit, shown as a row of the table."""

    name: str
    started: float = field(default_factory=lambda: time.monotonic())
    seconds: float = 0.0
    first: float = 0  # epochs that had been done before the fit was resumed
    done: float = 0
    total: int = 0
    loss: float | None = None
    score: float | None = None
    best: float | None = None
    rate: float | None = None  # configurations trained on per second
    is_begun: bool = False
    is_over: bool = False

    def take(self, *given: Any, **named: Any) -> None:
        """Receive a report of the fit's progress; the arguments are the fields of FitProgress."""
        new = FitProgress(*given, **named)
        if new.is_recalled:
            self.first = new.done
        # A stopped fit's reports are repeated only if it had validated. Otherwise the first report
        # of the resumed fit shows how many epochs were done before.
        elif not self.is_begun:
            self.first, self.is_begun = max(0, math.ceil(new.done) - 1), True
        self.done, self.total = new.done, new.total
        self.seconds = time.monotonic() - self.started
        if new.loss is not None:  # the loss is known only at the end of an epoch
            self.loss, self.rate = new.loss, new.rate
        if new.score is not None:
            self.score = new.score
            self.best = new.score if self.best is None else max(self.best, new.score)

    def cells(self) -> tuple[str, ...]:
        """Return the texts of the row, in the order of COLUMNS."""
        here = self.done - self.first
        left = (self.total - self.done) * self.seconds / here if here > 0 else None
        return (
            self.name,
            f"{spell_steps(self.done)}/{self.total}" if self.total else "",
            _show(self.loss, "{:.3f}"),
            _show(self.score, "{:.3f}"),
            _show(self.best, "{:.3f}"),
            _show(self.rate, "{:,.0f}"),
            _clock(self.seconds),
            "" if self.is_over else _clock(left),
        )


class TimeLeft:
    """An estimate of the time until all models are trained, from the durations of finished models
    or, for a kind without one, a running fit. `kinds`: the number of models of each kind."""

    def __init__(self, kinds: Mapping[str, int]) -> None:
        self._left = Counter(kinds)
        self._seconds: dict[str, list[float]] = {kind: [] for kind in kinds}

    def finish(self, name: str, seconds: float, line: FitLine | None = None) -> None:
        """Record the seconds of the finished model `name`. `line`: the progress of its fit. If the
        fit was resumed, the seconds are scaled up to all epochs."""
        if line is not None and line.done > line.first:
            seconds *= line.done / (line.done - line.first)
        kind = self._kind(name)
        self._left[kind] -= 1
        self._seconds.setdefault(kind, []).append(seconds)

    def describe(self, running: Sequence[FitLine], at_once: int) -> str:
        """Return the time left, as the end of a sentence; "" if unknown. `at_once`: number of fits
        that run at the same time."""
        known = {kind: list(seconds) for kind, seconds in self._seconds.items()}
        models: dict[str, float] = dict(self._left)
        for line in running:  # For a kind without a finished model, extrapolate from a running fit.
            seen, kind = time.monotonic() - line.started, self._kind(line.name)
            models[kind] = models.get(kind, 0) - (line.done / line.total if line.total else 0)
            if line.done > line.first and not known.setdefault(kind, []):
                known[kind].append(seen * line.total / (line.done - line.first))
        left = {kind: number for kind, number in models.items() if number > 0}
        means = {kind: sum(known[kind]) / len(known[kind]) for kind in left if known.get(kind)}
        if 2 * sum(left[kind] for kind in means) < sum(left.values()) or not means:
            return ""  # more than half of the models are of unknown duration
        least = "at least" if len(means) < len(left) else "about"
        seconds = sum(mean * left[kind] for kind, mean in means.items()) / max(1, at_once)
        return f", {least} {spell(seconds)} left"

    def _kind(self, name: str) -> str:
        return max((kind for kind in self._seconds if name.startswith(kind)), key=len, default="")


def spell_steps(steps: float) -> str:
    """Return a number of steps with at most one decimal, rounded down."""
    return f"{math.floor(10 * steps) / 10:g}"


def _show(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def _clock(seconds: float | None) -> str:
    return "" if seconds is None else f"{int(seconds) // 60}:{int(seconds) % 60:02}"


COLUMNS = ("Model", "Epoch", "Loss", "Score", "Best", "Per s", "Time", "Left")
OTHER_LINES = 5  # lines of the terminal besides the rows: title, header, rule, prompt
QUIET_SECONDS = 30.0  # approximate maximum seconds without a line in the log while fits are running


class Watch(Protocol):
    """A progress display of jobs; a job trains one model."""

    def job(self, name: str) -> AbstractContextManager[Report]:
        """Show a fit during the block; yield the function to which it reports."""
        ...

    def advance(self) -> None:
        """Count one more finished job."""
        ...


class ProgressBars:
    """A bar for all fits together, and one below it for each fit in progress."""

    def __init__(self, progress: Progress, total: int, description: str) -> None:
        self._progress = progress
        self._overall = progress.add_task(description, total=total, note="")

    @contextmanager
    def job(self, name: str) -> Iterator[Report]:
        """Show a bar for the fit called `name` inside the block."""
        task = self._progress.add_task(name, total=None, note="")

        def report(done: float, total: int, note: str = "", *_: Any, **__: Any) -> None:
            self._progress.update(task, completed=done, total=total, note=note)

        try:
            yield report
        finally:
            self._progress.remove_task(task)

    def advance(self, count: int = 1) -> None:
        """Count finished fits."""
        self._progress.advance(self._overall, count)

    def note(self, words: str) -> None:
        """Show a note beside the bar for all fits."""
        self._progress.update(self._overall, note=words)


def print_line(line: str) -> None:
    """Print a line to the terminal without interpreting markup or breaking it."""
    console.print(line, markup=False, highlight=False, soft_wrap=True)


class LogLines:
    """Plain lines for logs and terminals without bars: one per model, and at least two per minute.

    13:21:07  17 of 125  tile_gnn_001 tile:xla fold 2: inner score 0.974 in 6 s, about 3 min left

    `kinds`: the number of untrained models of each kind; a model's name begins with its kind (by
    default all are of one kind). `writers` receive every line; `shown` is another display that gets
    every report.
    """

    def __init__(
        self,
        total: int,
        kinds: Mapping[str, int] | None = None,
        writers: Sequence[Callable[[str], None]] = (print_line,),
        shown: Watch | None = None,
    ) -> None:
        self._total, self._done, self._writers, self._shown = total, 0, writers, shown
        self._left = TimeLeft({"": total} if kinds is None else kinds)
        self._said = time.monotonic()
        self._running: dict[str, FitLine] = {}
        self._over = threading.Event()

    def __enter__(self) -> Self:
        threading.Thread(target=self._speak_up, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    @contextmanager
    def job(self, name: str) -> Iterator[Report]:
        """Write a line when the fit `name` ends; until then heartbeat lines include it."""
        line = self._running[name] = FitLine(name)
        try:
            with self._shown.job(name) if self._shown else nullcontext(silent) as show:

                def report(*given: Any, **named: Any) -> None:
                    line.take(*given, **named)
                    show(*given, **named)

                yield report
        finally:
            at_once = len(self._running)
            del self._running[name]
        seconds = time.monotonic() - line.started
        self._left.finish(name, seconds, line)
        left = self._left.describe(list(self._running.values()), at_once)
        score = "" if line.best is None else f": inner score {line.best:.3f}"
        self._say(f"{name}{score} in {spell(seconds)}{left}", self._done + 1)

    def advance(self) -> None:
        """Count one more finished job."""
        self._done += 1
        if self._shown:
            self._shown.advance()

    def _speak_up(self) -> None:
        """Heartbeat: write a line about the running fits after QUIET_SECONDS without a line."""
        while not self._over.wait(QUIET_SECONDS / 4):
            if self._running and time.monotonic() - self._said > QUIET_SECONDS:
                running = list(self._running.values())
                lines = "; ".join(map(_describe, running))
                self._say(f"at work on {lines}{self._left.describe(running, len(running))}")

    def _say(self, words: str, number: int | None = None) -> None:
        self._said = time.monotonic()
        done = self._done if number is None else number
        line = f"{time.strftime('%H:%M:%S')}  {done} of {self._total}  {words}"
        for write in self._writers:
            write(line)


class LogFile:
    """A log file to which each line is appended at once. After a failed write it prints one message
    and drops all further lines."""

    def __init__(self, path: Path) -> None:
        self._path, self._is_lost = path, False
        self(f"-- {time.strftime('%Y-%m-%d')}")

    def __call__(self, line: str) -> None:
        if self._is_lost:
            return
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
        except OSError as error:
            self._is_lost = True
            print_line(f"{self._path}: no more lines can be written there: {error.strerror}.")


@contextmanager
def watch_jobs(
    total: int, kinds: Mapping[str, int], log: Path, title: str | None = None
) -> Iterator[Watch]:
    """Yield a display of jobs: on a terminal bars or, with a `title`, a table with a row per fit;
    otherwise plain lines. The file `log` always gets the lines. `total`, `kinds`: see LogLines."""
    file = LogFile(log)
    if not console.is_terminal:
        with LogLines(total, kinds, (print_line, file)) as lines:
            yield lines
        return
    with ExitStack() as screen:
        shown: Watch
        if title is None:
            shown = ProgressBars(screen.enter_context(bars()), total, "Training")
        else:
            shown = screen.enter_context(LiveTable(title, total))
        yield screen.enter_context(LogLines(total, kinds, (file,), shown))


class LiveTable:
    """A table with a row per fit, updated on the terminal while the context is open."""

    def __init__(self, title: str, total: int) -> None:
        self._title, self._total, self._advanced = title, total, 0
        self._lines: list[FitLine] = []
        self._shown = 0  # number of last rows to show; 0: all
        self._live = Live(console=console, get_renderable=self.render, refresh_per_second=4)

    def __enter__(self) -> Self:
        self._shown = max(1, console.height - OTHER_LINES)
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._shown = 0
        self._live.stop()
        console.line()  # so that a message begins on a new line

    @contextmanager
    def job(self, name: str) -> Iterator[Report]:
        """Show a row for the fit called `name`; it stays after the fit."""
        line = FitLine(name.removeprefix(f"{self._title} "))
        self._lines.append(line)
        try:
            yield line.take
        finally:
            line.seconds, line.is_over = time.monotonic() - line.started, True

    def advance(self) -> None:
        """Count one more finished job."""
        self._advanced += 1

    def render(self) -> Table:
        """Return the current table; while live, the last rows that fit on the terminal."""
        table = make_table(f"{self._title}: {self._advanced} of {self._total} models are there")
        for name in COLUMNS:
            table.add_column(name, justify="left" if name == "Model" else "right", no_wrap=True)
        for line in self._lines[-self._shown :]:
            table.add_row(*line.cells())
        return table


def _describe(line: FitLine) -> str:
    return line.name + (f": step {spell_steps(line.done)} of {line.total}" if line.total else "")
