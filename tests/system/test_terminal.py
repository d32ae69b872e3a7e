"""No name of a file commands the terminal, and any text can be printed."""

import os
import re
import subprocess
import sys
import tomllib
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.progress import Progress
from rich.text import Text

from solution.system.progress import ByteRateColumn, TimeColumn, bars
from solution.system.terminal import PlainConsole, escape, make_table
from solution.system.wording import compare_times, how_to_install
from tests.conftest import REPOSITORY, FastSlow
from tests.made.graphs import make_layout_graph, write_graph

TITLE = "\x1b]0;owned\x07"
HOSTILE = {
    "colour": ("\x1b[31mred", r"\x1b[31mred"), "title": (TITLE, r"\x1b]0;owned"),
    "clipboard": ("\x1b]52;c;aGk=\x07", r"\x1b]52;c;aGk="),
    "control sequence in one byte": ("\x9b31m", r"\x9b31m"),
    "carriage return": ("bad\rgood", "bad"), "backspace": ("bad\b\b\bgood", "bad"),
    "other direction": ("\u202egnp.npz", r"\u202egnp.npz"),
    "separator of lines": ("one\u2028two", r"one\u2028two"), "no text": ("\udcff", r"\udcff"),
}  # fmt: skip
COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@pytest.mark.parametrize(("text", "shown"), HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("is_terminal", [False, True])
def test_what_a_terminal_would_obey_is_escaped(text: str, shown: str, is_terminal: bool) -> None:
    file = StringIO()
    console = PlainConsole(file=file, force_terminal=is_terminal, color_system=None, width=60)
    console.print(text, markup=False, soft_wrap=True)
    assert shown in file.getvalue()
    table = make_table(Text(text))
    table.add_column("Name")
    table.add_row(Text(text))
    console.print(table)
    assert not COMMANDS.search(file.getvalue())


@given(st.text())
def test_escaped_text_has_no_commands_and_other_text_stays(text: str) -> None:
    assert not COMMANDS.search(escape(text))
    assert escape(escape(text)) == escape(text)
    if not COMMANDS.search(text) and not re.search("[\u061c\u200e\u200f]", text):
        assert escape(text) == text


@pytest.mark.parametrize("width", [50, 80])
def test_nothing_in_a_table_is_cut(width: int) -> None:
    """What has no room goes on below; columns that may be left out are left out, and named."""
    file = StringIO()
    console = PlainConsole(file=file, width=width)
    table = make_table("Scores", expendable=("Time",))
    for name in ("Name", "Score", "Time", "95% interval"):
        table.add_column(name, no_wrap=True)
    table.add_column("What it is")
    table.add_row("layout_gnn_001", "0.441", "1,234 s", "0.352 to 0.518", "tile " * 12)
    console.print(table)
    shown = file.getvalue()
    assert "…" not in shown and shown.count("tile") == 12
    assert "layout_gnn_001  0.441" in shown and "0.352 to 0.518" in shown
    assert ("narrow: Time" in shown) == (width < 80)


def test_a_defect_shows_its_file_escaped(fastslow: FastSlow, tmp_path: Path) -> None:
    path = write_graph(make_layout_graph(name=f"x{TITLE}"), tmp_path / "data")
    shown = fastslow("inspect", path)
    assert shown.returncode == 0, shown.stderr
    assert not COMMANDS.search(shown.stdout + shown.stderr)
    path.write_bytes(b"x")
    result = fastslow("check", "data")
    assert result.returncode == 2 and r"x\x1b]0;owned" in result.stderr
    assert not COMMANDS.search(result.stdout + result.stderr)


def test_text_beyond_the_encoding_is_printed_as_an_escape(tmp_path: Path) -> None:
    write_graph(make_layout_graph(name="père"), tmp_path / "data")
    command = [str(Path(sys.executable).parent / "fastslow"), "inspect"]
    command += [str(path) for path in (tmp_path / "data").rglob("*.npz")]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert rb"p\xe8re" in done.stdout


def test_a_console_asks_the_environment_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    file = StringIO()
    console = PlainConsole(file=file)
    monkeypatch.setenv("COLUMNS", "31")
    console.rule()
    assert len(file.getvalue().rstrip("\n")) == 31
    with pytest.raises(AttributeError, match="'paint'"):
        _ = console.paint


PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_an_extra_is_installed_from_the_folder_and_is_there() -> None:
    told = how_to_install("collect")
    assert told == 'In the project\'s folder, pip install -c constraints.txt -e ".[collect]"'
    assert (REPOSITORY / "constraints.txt").is_file()
    texts = (path.read_text("utf-8") for path in (REPOSITORY / "solution").rglob("*.py"))
    named = set(re.findall(r"how_to_install\([\"'](.+?)[\"']\)", "\n".join(texts)))
    assert {"collect", "collect-torch", "cluster"} <= named
    assert named <= set(PROJECT["optional-dependencies"])


def test_the_time_left_is_called_so() -> None:
    progress = bars()
    task = progress.add_task("Reading", total=40, note="")
    column = TimeColumn()
    column.max_refresh = None
    for steps, shown in ((0, ""), (3, r", [\d.]+ s left"), (1, "")):  # first nothing is known yet
        for _ in range(steps):
            progress.advance(task, 10)
        assert re.fullmatch(rf"0\.\d s{shown}", column.render(progress.tasks[0]).plain)


def test_in_the_end_the_rate_is_that_of_all_bytes() -> None:
    """The last of many files may be small, and slow for its size."""
    moment = [0.0]
    progress = Progress(ByteRateColumn(), get_time=lambda: moment[0])
    task = progress.add_task("Reading", total=9_000_010)
    for second, done in ((1, 9_000_000), (2, 9_000_009), (3, 9_000_010)):
        moment[0] = second
        progress.update(task, completed=done)
    assert ByteRateColumn().render(progress.tasks[0]).plain == "3.0 MB/s"


@pytest.mark.parametrize(
    ("ratio", "words"),
    [(1.0, "as long"), (1.15, "1.15 times as long"), (0.5, "0.50 times as long"),
     (1.003, "0.3% more time"), (0.9983, "0.17% less time")],
)  # fmt: skip
def test_a_ratio_of_times_ends_the_sentence_it_takes(ratio: float, words: str) -> None:
    assert compare_times(ratio) == words
