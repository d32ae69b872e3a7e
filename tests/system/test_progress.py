"""What a bar says: how long it has taken and how long it still takes, in words that say which."""

import re

from rich.progress import Progress

from solution.system.progress import ByteRateColumn, TimeColumn, bars
from solution.system.wording import count, spell


def test_the_time_left_is_called_so() -> None:
    progress = bars()
    task = progress.add_task("Reading", total=40, note="")
    column = TimeColumn()
    assert re.fullmatch(r"0\.\d s", column.render(progress.tasks[0]).plain)  # nothing is known yet
    for _ in range(3):
        progress.advance(task, 10)
    column.max_refresh = None
    assert re.fullmatch(r"[\d.]+ s, [\d.]+ s left", column.render(progress.tasks[0]).plain)
    progress.advance(task, 10)
    assert re.fullmatch(r"0\.\d s", column.render(progress.tasks[0]).plain)


def test_durations_and_counts_are_as_people_say_them() -> None:
    assert [spell(seconds) for seconds in (0.04, 12.4, 185, 4800)] == [
        "0.0 s", "12 s", "3 min 5 s", "1 h 20 min"
    ]  # fmt: skip
    assert [count(number, "graph") for number in (0, 1, 1200)] == [
        "0 graphs", "1 graph", "1,200 graphs"
    ]  # fmt: skip


def test_in_the_end_the_rate_is_that_of_all_bytes() -> None:
    """The last of many files may be small, and slow for its size."""
    moment = [0.0]
    progress = Progress(ByteRateColumn(), get_time=lambda: moment[0])
    task = progress.add_task("Reading", total=9_000_010)
    for second, done in ((1, 9_000_000), (2, 9_000_009), (3, 9_000_010)):
        moment[0] = second
        progress.update(task, completed=done)
    assert ByteRateColumn().render(progress.tasks[0]).plain == "3.0 MB/s"
