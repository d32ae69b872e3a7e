"""The ledger: whatever people and branches do to it, no column and no line is lost."""

import csv
import io
import re
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from solution.system.errors import InputError
from submissions.ledger import COLUMNS, STATES, Ledger, edit_ledger, read_ledger, write_ledger
from submissions.scores import describe_correlation, find_best, tabulate_standing
from tests.conftest import REPOSITORY
from tests.kaggle.desk import Desk, check
from tests.kaggle.world import BOARD, LIST, Fault

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
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
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


def test_a_spreadsheet_may_save_it(tmp_path: Path) -> None:
    path = tmp_path / "ledger.csv"
    path.write_bytes('\ufeffkey,notes\r\nk,"two\r\nlines"\r\n\r\n'.encode())
    (line,) = read_ledger(path).lines
    assert line["notes"] == "two\nlines"


@pytest.mark.parametrize(("text", "message"), [
    ("key,notes\n<<<<<<< HEAD\nk,a\n=======\nk,b\n>>>>>>> other\n", "2.*unresolved"),
    ("key,notes\nk,a,b\n", "2.*3.*header.*2"), ("key,oof_mean,notes\nk,a\n", "2.*2.*header.*3"),
    ('key,notes\nk,"a\n', "CSV line"),
    ("name,notes\nk,a\n", "a column key"), ("key,key\nk,a\n", "distinct names"),
])  # fmt: skip
def test_what_cannot_be_read_whole_is_left_alone(tmp_path: Path, text: str, message: str) -> None:
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


OOF = {"a": 0.5, "b": 0.6, "c": 0.7, "d": 0.4}
HEADER = "key,when,recipe,state,ref,oof_tile_xla,oof_mean,public,private,notes\n"


def list_row(ref: int, description: str, public: str, private: str) -> dict[str, object]:
    row = {"ref": ref, "date": f"2026-11-{ref:02}T10:00:00.123000Z", "description": description}
    scored = {"status": "COMPLETE", "publicScore": public, "privateScore": private}
    return {**row, "fileName": "submission.csv", **scored}


def test_scores_fills_the_ledger_and_shows_it(desk: Desk) -> None:
    path = desk.write_ledger(
        HEADER
        + "a,2026-11-01T10:00:00Z,mean_rank_001,pending,1,0.93,0.5,,,first one\n"
        + "b,2026-11-02T10:00:00Z,a_recipe_with_a_long_name,sending,,0.94,0.6,,,\n"
        + ",2023-11-15,by hand,,,,,0.65,,\n"
    )
    desk.world.submissions = [
        list_row(1, "key=a recipe=mean_rank_001", "0.611", "0.60149"),
        list_row(2, "key=b recipe=x", "0.715", "0.70216"),
        list_row(3, "key=c recipe=other commit=abc file=9f oof=0.7", "0.700", "0.692"),
        list_row(4, "from the website,\nby hand", "0.500", "0.41"),
    ]
    done = check(desk.call("scores"))
    lines = {line["ref"]: line for line in desk.ledger.lines}
    assert (lines["1"]["state"], lines["1"]["private"]) == ("scored", "0.60149")
    assert lines["1"]["notes"] == "first one"
    assert (lines["2"]["key"], lines["2"]["public"]) == ("b", "0.715")
    third = [lines["3"][name] for name in ("key", "recipe", "oof_mean")]
    assert third == ["c", "other", "0.7"]
    assert lines["3"]["when"] == "2026-11-03T10:00:00Z"
    assert (lines["4"]["key"], lines["4"]["notes"]) == ("kaggle-4", "from the website, by hand")
    assert lines[""]["recipe"] == "by hand"
    assert max(map(len, done.stdout.splitlines()[:-2])) <= 80
    assert re.search(r"26-11-01 +mean_rank_001 .* 0\.93 +0\.500 +0\.611 +0\.601", done.stdout)
    order = ["10th, selected", "ours, b", "11th, pairwise", "33rd, selected"]
    offsets = [done.stdout.index(name) for name in order]
    assert offsets == sorted(offsets)
    assert all(fact in done.words for fact in ("public 0.79", "0.50", "3 submissions"))
    before = path.read_bytes()
    assert desk.call("scores").code == 0
    assert path.read_bytes() == before


@pytest.mark.parametrize("description", ["by hand", "key=a recipe=x"])
def test_a_score_that_comes_later_is_fetched_by_its_number(description: str, desk: Desk) -> None:
    """What Kaggle lists may have no key, or none any more: its message can be edited there."""
    row = list_row(7, description, "", "")
    desk.world.submissions = [{**row, "status": "PENDING"}]
    assert desk.call("scores").code == 0
    desk.world.submissions = [list_row(7, "edited", "0.7", "0.6")]
    assert desk.call("scores").code == 0
    (line,) = desk.ledger.lines
    assert line["key"] == ("kaggle-7" if description == "by hand" else "a")
    assert (line["state"], line["public"], line["private"]) == ("scored", "0.7", "0.6")


def test_without_kaggle_the_ledger_is_shown_all_the_same(desk: Desk) -> None:
    desk.write_ledger(HEADER + "a,2026-11-01,my_recipe,scored,1,,,0.6,0.5,\n")
    desk.world.faults = [Fault(LIST, "500")]
    done = check(desk.call("scores"), 2)
    assert "my_recipe" in done.stdout
    assert "server failed" in done.words


def test_correlation_is_that_of_the_lines_with_both_scores() -> None:
    ledger = Ledger()
    for number, (key, oof) in enumerate(OOF.items()):
        ledger.put(key, oof_mean=str(oof), public=str(number), private=str(-number))
    ledger.put("pending", oof_mean="0.9")
    frame = pl.DataFrame({"oof": list(OOF.values()), "public": range(4)})
    linear = frame.select(pl.corr("oof", "public")).item()
    text = describe_correlation(ledger)
    assert f"public {linear:.2f} (ranks -0.20, 4 submissions)" in text
    assert f"private {-linear:.2f} (ranks 0.20, 4 submissions)" in text
    assert find_best(ledger) == ledger.find("a")
    assert "are needed" in describe_correlation(Ledger())
    for line in ledger.lines:
        line["private"] = "0.5"
    assert all(fact in describe_correlation(ledger) for fact in ("private score", "the same"))


def test_a_hidden_public_score_is_not_zero() -> None:
    ledger = Ledger()
    ledger.put("a", private="0.5")
    table = tabulate_standing(ledger)
    names, publics, privates = (list(column.cells) for column in table.columns)
    row = [str(name) for name in names].index("ours, a")
    assert (publics[row], privates[row]) == ("-", "0.500")


def test_the_leaderboard_around_us(desk: Desk) -> None:
    desk.write_ledger(HEADER + "a,2026,r,scored,1,,,0.6805,0.5,\n")
    desk.world.board = [
        {"teamId": n, "teamName": f"Team é{n} [b]", "score": f"{0.8 - n / 1000:.5f}"}
        for n in range(1, 617)
    ]
    done = check(desk.call("leaderboard"))
    assert desk.world.count(BOARD) == 4  # pages of 200
    assert "616 teams" in done.words
    assert re.search(r"\n +1 +Team é1 \[b\] +0\.79900", done.stdout)
    above, ours, below = (done.stdout.index(w) for w in ("Team é119 ", "(120)", "Team é120 "))
    assert above < ours < below
    assert "Team é130" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_team_without_a_score_does_not_hide_the_others(desk: Desk) -> None:
    odd = [{}, *({"score": score} for score in ("", "NaN", "Infinity", "0,65"))]
    desk.world.board = [{"teamId": 1, "teamName": "first", "score": "0.7"}]
    desk.world.board += [{"teamId": n, "teamName": "odd", **row} for n, row in enumerate(odd, 2)]
    done = check(desk.call("leaderboard"))
    assert re.search(r"\n +1 +first +0\.70000", done.stdout)
    assert re.findall(r"\n +(\d) +odd *(?=\n)", done.stdout) == list("23456")


def test_a_score_that_is_no_number_is_none(desk: Desk) -> None:
    odd = ("NaN", "Infinity", "1e400")
    desk.world.submissions = [list_row(ref, "x", score, "0.5") for ref, score in enumerate(odd, 7)]
    check(desk.call("scores"))
    scores = [(line["public"], line["private"]) for line in desk.ledger.lines]
    assert scores == [("", "0.5")] * 3


def test_brackets_in_a_note_are_no_markup(desk: Desk) -> None:
    header = "key,state,recipe,oof_mean,public,private,notes"
    desk.write_ledger(f"{header}\na[/b],scored,[red]x,0.5,0.6,0.6,y [/b] [wip]\n")
    done = check(desk.call("scores"))
    squeezed = "".join(done.stdout.split())
    assert all(text in squeezed for text in ("[red]x", "y[/b][wip]", "ours,a[/b]"))
    assert all(fact in done.words for fact in ("1 submission", "both"))
