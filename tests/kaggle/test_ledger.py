"""The ledger: whatever people and branches do to it, no column and no line is lost."""

import csv
import io
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from solution.system.errors import InputError
from submissions.ledger import COLUMNS, STATES, Ledger, edit_ledger, read_ledger, write_ledger
from tests.conftest import REPOSITORY

CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=12).filter(
    lambda text: not text.startswith(("<<<<<<<", "=======", ">>>>>>>")) and "\n" not in text
)
OWN_NAMES = st.text(st.characters(min_codepoint=97, max_codepoint=122), min_size=1, max_size=6)
KEYS = st.sampled_from(["", "a", "b", "c"])


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[dict[str, str]]]:
    """A header with some of our columns and some of somebody's, in any order, and lines."""
    ours = draw(st.sets(st.sampled_from(COLUMNS[1:])))
    theirs = draw(st.sets(OWN_NAMES.filter(lambda name: name not in COLUMNS), max_size=3))
    columns = draw(st.permutations(["key", *sorted(ours), *sorted(theirs)]))
    line = st.fixed_dictionaries(
        {
            name: KEYS if name == "key" else st.sampled_from(STATES) if name == "state" else CELLS
            for name in columns
        }
    )
    return list(columns), draw(st.lists(line, max_size=5))


def write_table(path: Path, columns: list[str], lines: list[dict[str, str]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    path.write_text(text.getvalue(), encoding="utf-8")


@given(tables())
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_nothing_that_somebody_wrote_is_lost(
    tmp_path: Path, table: tuple[list[str], list[dict[str, str]]]
) -> None:
    path = tmp_path / "ledger.csv"
    columns, lines = table
    write_table(path, columns, lines)
    with edit_ledger(path) as ledger:
        ledger.put("mine", state="sending", when="2026")
    ledger = read_ledger(path)
    assert [name for name in ledger.columns if name in columns] == columns
    assert set(ledger.columns) == {*columns, *COLUMNS}
    unkeyed = [line for line in lines if not line["key"] and any(line.values())]
    for line in unkeyed:  # as it was, cell by cell
        assert {**dict.fromkeys(ledger.columns, ""), **line} in ledger.lines
    for line in lines:
        found = ledger.find(line["key"])
        if line["key"] and found is not None:
            for name in {*columns, "notes"} - set(COLUMNS[:-1]):
                assert line.get(name, "") in found[name], name
    assert len({line["key"] for line in lines if line["key"]}) + 1 == sum(
        bool(line["key"]) for line in ledger.lines
    )
    once = path.read_bytes()
    write_ledger(read_ledger(path), path)
    assert path.read_bytes() == once


def test_two_branches_that_both_wrote_are_joined(tmp_path: Path) -> None:
    """What merge=union leaves: both versions of a line, in either order."""
    older = {"key": "k", "when": "1", "state": "sending", "notes": "mine", "public": ""}
    newer = {"key": "k", "when": "1", "state": "scored", "notes": "yours", "public": "0.7"}
    for lines in ([older, newer], [newer, older]):
        write_table(tmp_path / "ledger.csv", list(older), lines)
        (line,) = read_ledger(tmp_path / "ledger.csv").lines
        assert (line["state"], line["public"]) == ("scored", "0.7")
        assert set(line["notes"].split(" | ")) == {"mine", "yours"}


def test_lines_are_sorted_by_time(tmp_path: Path) -> None:
    ledger = Ledger()
    for when in ("2026-03", "2026-01", "2026-02"):
        ledger.put(f"key-{when}", when=when)
    write_ledger(ledger, tmp_path / "ledger.csv")
    whens = [line["when"] for line in read_ledger(tmp_path / "ledger.csv").lines]
    assert whens == sorted(whens)


def test_a_spreadsheet_may_save_it(tmp_path: Path) -> None:
    path = tmp_path / "ledger.csv"
    path.write_bytes('\ufeffkey,notes\r\nk,"two\r\nlines"\r\n\r\n'.encode())
    (line,) = read_ledger(path).lines
    assert line["notes"] == "two\nlines"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("key,notes\n<<<<<<< HEAD\nk,a\n=======\nk,b\n>>>>>>> other\n", "line 2: an unsolved"),
        ("key,notes\nk,a,b\n", "line 2: 3 cells, but the header has 2"),
        ('key,notes\nk,"a\n', "not a CSV line"),
        ("name,notes\nk,a\n", "a column key"),
        ("key,key\nk,a\n", "distinct names"),
    ],
)
def test_what_cannot_be_read_whole_is_refused_and_left_alone(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "ledger.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message), edit_ledger(path) as ledger:
        ledger.put("mine", state="sending")
    assert path.read_text(encoding="utf-8") == text


def test_the_ledger_of_the_project_has_its_columns() -> None:
    ledger = read_ledger(REPOSITORY / "submissions" / "ledger.csv")
    assert ledger.columns[: len(COLUMNS)] == list(COLUMNS)
    attributes = (REPOSITORY / ".gitattributes").read_text(encoding="utf-8")
    assert "submissions/ledger.csv merge=union" in attributes
