"""Show progress bars with rate and remaining time, in one style for every long step."""

from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import TypeVar

from rich import filesize
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
)
from rich.text import Text

from solution.system.terminal import PlainConsole
from solution.system.wording import spell

T = TypeVar("T")

console = PlainConsole(stderr=True)  # stderr, because results go to standard output


def warn(words: str) -> None:
    """Print a warning in yellow on standard error, without wrapping long paths."""
    console.print(words, style="yellow", markup=False, highlight=False, soft_wrap=True)


class RateColumn(ProgressColumn):
    """A column with completed items per second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.3g}/s", style="progress.data.speed")


class ByteRateColumn(ProgressColumn):
    """A column with bytes per second: the recent rate; after the task's end, the mean rate."""

    def render(self, task: Task) -> Text:
        speed = task.completed / task.finished_time if task.finished_time else task.speed
        words = "" if speed is None else f"{filesize.decimal(int(speed))}/s"
        return Text(words, style="progress.data.speed")


class TimeColumn(ProgressColumn):
    """A column with the elapsed time and, if known, the remaining time."""

    max_refresh = 0.5  # seconds between two changes of the text, so that it is readable

    def render(self, task: Task) -> Text:
        words = spell(task.finished_time or task.elapsed or 0.0)
        if not task.finished and task.time_remaining is not None:
            words += f", {spell(task.time_remaining)} left"
        return Text(words, style="progress.elapsed")


def bars() -> Progress:
    """Return a progress display with description, bar, counts, rate and times."""
    return _make_bars(MofNCompleteColumn(), RateColumn())


def byte_bars() -> Progress:
    """Return a progress display like bars(), with sizes and rates in bytes."""
    return _make_bars(DownloadColumn(), ByteRateColumn())


def _make_bars(done: ProgressColumn, speed: ProgressColumn) -> Progress:
    return Progress(
        # no markup, because the description may contain a file's name
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        done,
        speed,
        TimeColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
    )


@contextmanager
def track(items: Iterable[T], description: str) -> Iterator[Iterator[T]]:
    """Yield an iterator over `items` that advances one progress bar."""
    total = len(items) if isinstance(items, Sized) else None
    with bars() as progress:
        task = progress.add_task(description, total=total, note="")

        def advance() -> Iterator[T]:
            for item in items:
                yield item
                progress.advance(task)

        yield advance()
