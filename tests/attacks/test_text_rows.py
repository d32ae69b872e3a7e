"""Single attacks on what people write as text: recipes and submissions, read or refused by name."""

from pathlib import Path

import polars as pl
import pytest

from ensembles.merge import merge_run
from ensembles.recipe import find_recipe
from ensembles.votes import METHODS
from solution.domain import predictions
from solution.runs.folder import Run
from solution.system.errors import InputError
from submissions.writer import Expected, check_submission, write_submission
from tests.made.guarded import Guard
from tests.made.run import make_run

pytestmark = pytest.mark.slow
MEMBERS = "\n[members]\na = 1\n"
WEIGHTS = (
    "nan", "inf", "-inf", "-1", "0", "0.0", "-0.0", "1" + "0" * 400, "[1]", '"1"', '"a"', "true",
    "false", "1979-05-27", "{}", "[]", "1e400", "0x10000000000000000000000000000000000", '""',
)  # fmt: skip
RECIPES = {
    **{f"weight {weight[:20]}": f"[members]\na = {weight}\n" for weight in WEIGHTS
       if not weight.startswith("0x")},
    "repeated member": "[members]\na = 1\na = 2\n",
    "repeated table": MEMBERS + MEMBERS,
    "unknown key": "wait = 1" + MEMBERS,
    "unknown method": 'method = "os.system"' + MEMBERS,
    "unknown collection": MEMBERS + '[collections."tile:nlp"]\na = 1\n',
    "own name": 'name = "other"' + MEMBERS,
    "no members": "[members]\n",
    "empty": "",
    "method a list": 'method = ["mean_rank"]' + MEMBERS,
    "fallback a path": 'fallback = "../x"' + MEMBERS,
    "fallback a number": "fallback = 1" + MEMBERS,
    "allow all": 'allow_missing = ["everything"]' + MEMBERS,
    "allow a word": 'allow_missing = "members"' + MEMBERS,
    "members a list": "members = [1]\n",
    "collections a list": "collections = [1]" + MEMBERS,
    "deep list": f"x = {5_000 * '['}",
    "deep table": "[" + ".".join(5_000 * ["a"]) + "]\n",
    "no toml": "members:\n  a: 1\n",
    "an open string": 'method = "mean',
    "NUL": "\0" + MEMBERS,
    **{f"member {name[:12]!r}": f"[members]\n'{name}' = 1\n" for name in
       ("../other/x", "/etc/passwd", "a/b", "..", ".hidden", "", "a\\b", "-rf", "a b", "é/..")},
}  # fmt: skip


@pytest.mark.parametrize("name", RECIPES)
def test_a_hostile_recipe_is_refused(name: str, tmp_path: Path, guard: Guard) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(RECIPES[name], encoding="utf-8")
    with pytest.raises(InputError) as caught:
        guard.call(find_recipe, str(path))
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 3_000


@pytest.mark.parametrize("content", [b"\xff\xfe\0", bytes(range(256)), b"\x80"])
def test_a_recipe_that_is_no_text_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_bytes(content)
    with pytest.raises(InputError, match=r"mine\.toml"):
        find_recipe(str(tmp_path / "mine.toml"))


@pytest.mark.parametrize(
    "name", ["..toml", "...toml", ".toml", "a b.toml", "-rf.toml", "a\nb.toml"]
)
def test_a_recipe_with_a_hostile_name_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(MEMBERS)
    with pytest.raises(InputError):
        find_recipe(str(tmp_path / name))


@pytest.mark.parametrize("weights", [("5e-324",), ("1e300", "1e-300"), ("1e308", "1e308"), ("1",)])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_odd_weights_that_are_numbers_are_read(
    weights: tuple[str, ...], ends: str, tmp_path: Path
) -> None:
    lines = ["[members]", *(f"m{place} = {weight}" for place, weight in enumerate(weights)), ""]
    (tmp_path / "mine.toml").write_bytes(ends.join(lines).encode())
    found = find_recipe(str(tmp_path / "mine.toml")).members
    assert list(found.values()) == [float(weight) for weight in weights]


LAYOUT, TILE = "layout:xla:random:g", "tile:xla:k"
ASKED = Expected({LAYOUT: 4, TILE: 20}, "the test split")
ROWS = (f"{LAYOUT},2;0;1;3", f"{TILE},4;0;1;2;19")
INDICES = (
    "+1", "-0", " 1", "1 ", "1e0", "1.0", "0x1", "1_0", "\u0661", "\uff11", "", "-1", "nan", "1\0",
    "9" * 10, "9" * 5_000, "20", "\u00b2", "\ud7ff", "None", "[1]", "1:2", "1|2",
)  # fmt: skip
LINES = {
    **{f"index {place}": (ROWS[0], f"{TILE},4;0;{index};2;19")
       for place, index in enumerate(INDICES)},
    "trailing semicolon": (ROWS[0], f"{TILE},4;0;1;2;19;"),
    "leading semicolon": (ROWS[0], f"{TILE},;4;0;1;2;19"),
    "double semicolon": (ROWS[0], f"{TILE},4;0;;1;2;19"),
    "spaces": (ROWS[0], f"{TILE},4 0 1 2 19"),
    "commas": (ROWS[0], f"{TILE},4,0,1,2,19"),
    "four of five": (ROWS[0], f"{TILE},4;0;1;2"),
    "six of five": (ROWS[0], f"{TILE},4;0;1;2;19;3"),
    "repeated": (ROWS[0], f"{TILE},4;0;1;2;4"),
    "out of range": (f"{LAYOUT},2;0;1;4", ROWS[1]),
    "a layout in part": (f"{LAYOUT},2;0;1", ROWS[1]),
    "missing row": ROWS[:1],
    "repeated row": (*ROWS, ROWS[1]),
    "unknown row": (*ROWS, "tile:xla:other,1;2;3;4;5"),
    "spaced ID": (ROWS[0], f" {ROWS[1]}"),
    "other case": (ROWS[0].upper(), ROWS[1]),
    "blank line": (ROWS[0], "", ROWS[1]),
    "extra column": (ROWS[0], f"{ROWS[1]},1"),
    "no column": (ROWS[0], TILE),
    "open quote": (ROWS[0], f'"{ROWS[1]}'),
    "quote inside": (ROWS[0], f'{TILE},4;"0";1;2;19'),
    "NUL": (ROWS[0], ROWS[1].replace(";", "\0")),
    "formula": (ROWS[0], f"{TILE},=cmd"),
    "no rows": (),
}  # fmt: skip
HEADERS = (
    "", "ID", "id,topconfigs", "TopConfigs,ID", "ID,TopConfigs,x", "ID;TopConfigs",
    "ID, TopConfigs", "\ufeffID,TopConfigs", "ID\tTopConfigs", "x" * 10**6,
)  # fmt: skip


def check(path: Path) -> int:
    return check_submission(path, ASKED)


@pytest.mark.parametrize("name", LINES)
def test_hostile_lines_are_refused(name: str, tmp_path: Path, guard: Guard) -> None:
    path = tmp_path / "submission.csv"
    path.write_text("\n".join(["ID,TopConfigs", *LINES[name], ""]), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        guard.call(check, path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 1_500


@pytest.mark.parametrize("header", HEADERS, ids=range(len(HEADERS)))
def test_hostile_headers_are_refused(header: str, tmp_path: Path, guard: Guard) -> None:
    path = tmp_path / "submission.csv"
    path.write_text("\n".join([header, *ROWS, ""]), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        guard.call(check, path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 1_500


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig"])
def test_other_encodings_are_refused(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "submission.csv"
    path.write_text("\n".join(["ID,TopConfigs", *ROWS, ""]), encoding=encoding)
    with pytest.raises(InputError, match=r"submission\.csv"):
        check(path)


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("rows", [ROWS, ROWS[::-1], [row.replace(",", ',"') + '"' for row in ROWS]])
@pytest.mark.parametrize("last", [True, False])
def test_what_kaggle_reads_is_accepted(
    ends: str, rows: tuple[str, ...], last: bool, tmp_path: Path
) -> None:
    path = tmp_path / "submission.csv"
    path.write_bytes((ends.join(["ID,TopConfigs", *rows]) + last * ends).encode())
    assert check(path) == 2


def write_repeated(path: Path, begin: str, text: str, megabytes: int) -> Path:
    with path.open("w") as file:
        file.write(begin)
        file.writelines([text * (1 << 20)] * megabytes)
    return path


LONG = {
    "a header line of 100 MB": ("", "x"),
    "a line of 100 MB of 9s": (f"ID,TopConfigs\n{ROWS[0]}\n{TILE},", "9"),
    "an ID of 100 MB": ("ID,TopConfigs\n", "y"),
    "100 MB in quotes": ('ID,TopConfigs\n"', "z"),
    "100 million blank lines": ("ID,TopConfigs\n", "\n"),
}


@pytest.mark.parametrize("name", LONG)
def test_a_line_without_end_is_refused_in_short(name: str, tmp_path: Path, guard: Guard) -> None:
    path = write_repeated(tmp_path / "submission.csv", *LONG[name], 100)
    try:
        with pytest.raises((InputError, MemoryError)) as caught:
            guard.call(check, path)
        assert len(str(caught.value)) < 1_500
    finally:
        path.unlink()


def test_a_graph_of_millions_of_configurations_is_checked(tmp_path: Path, guard: Guard) -> None:
    count = 2_000_000
    path = tmp_path / "submission.csv"
    path.write_text("ID,TopConfigs\n" + f"{LAYOUT}," + ";".join(map(str, range(count))) + "\n")
    assert guard.call(check_submission, path, Expected({LAYOUT: count}, "the test split")) == 1


@pytest.mark.parametrize("text", ["ID,TopConfigs\n", "ID,TopConfigs", ""])
def test_a_sample_without_rows_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "sample_submission.csv").write_text(text)
    run = make_run(tmp_path / "run")
    with pytest.raises(InputError, match="sample_submission.csv"):
        write_submission(
            pl.DataFrame(schema=predictions.RANKING_SCHEMA),
            pl.read_parquet(run.graphs).with_columns(split=pl.lit("test")),
            tmp_path / "sample_submission.csv",
            tmp_path / "submission.csv",
        )
    assert not (tmp_path / "submission.csv").exists()


def merge(folder: Path, text: str) -> pl.DataFrame:
    """The out-of-fold ranking of a run by the recipe."""
    run = make_run(folder / "run") if not (folder / "run").exists() else Run(folder / "run")
    (folder / "mine.toml").write_text(text)
    merge_run(run, find_recipe(str(folder / "mine.toml")))
    return predictions.read(run.ranking("mine", "out_of_fold"))


@pytest.mark.parametrize("weights", ["1e308", "5e-324"])
@pytest.mark.parametrize("method", METHODS)
def test_only_the_ratio_of_weights_counts(method: str, weights: str, tmp_path: Path) -> None:
    text = 'method = "{}"\n[members]\nnet_001 = {}\ntrees_001 = {}\n'
    expected = merge(tmp_path, text.format(method, 1, 1))
    assert merge(tmp_path, text.format(method, weights, weights)).equals(expected)
    assert expected["score"].n_unique() > 10


@pytest.mark.parametrize("name", ["../other/net_001", "/etc/passwd", "./net_001", "net_001/.."])
def test_a_member_outside_the_run_is_refused(name: str, tmp_path: Path) -> None:
    make_run(tmp_path / "other")
    text = f'allow_missing = ["members"]\n[members]\n"{name}" = 1\nnet_001 = 1\n'
    with pytest.raises(InputError, match="mine.toml"):
        merge(tmp_path, text)


@pytest.mark.parametrize("allow", ["", 'allow_missing = ["members"]\n'])
def test_many_unknown_members(allow: str, tmp_path: Path) -> None:
    """Refused, with some of their names; or left out, where that is allowed."""
    members = "".join(f"m{number} = 1\n" for number in range(100_000))
    text = f"{allow}[members]\nnet_001 = 1\n{members}"
    if allow:
        assert merge(tmp_path, text).equals(merge(tmp_path, "[members]\nnet_001 = 1\n"))
        return
    with pytest.raises(InputError) as caught:
        merge(tmp_path, text)
    assert len(str(caught.value)) < 3_000
