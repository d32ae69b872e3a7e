"""The submission file: what the writer writes, and what the checker refuses."""

import csv
import dataclasses
import random
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from solution.domain.collection import COLLECTIONS
from solution.domain.predictions import RANKING_SCHEMA
from solution.system.errors import InputError
from solution.system.sealing import describe_file
from submissions.writer import Expected, Written, check_submission, write_submission

L, N, T = "layout:xla:random", "layout:nlp:default", "tile:xla"
GRAPHS = pl.DataFrame(
    [(T, "k2", "test", 7), (T, "k1", "test", 3), (T, "seen", "train", 9), (N, "n", "test", 2),
     (L, "b", "test", 3), (L, "a", "test", 6)],
    schema=["collection", "graph", "split", "configs"], orient="row",
)  # fmt: skip
SCORES = {
    (T, "k2"): [0.3, 0.1, 0.1, 0.9, 0.2, 0.1, 0.05], (T, "k1"): [0.3, 0.2, 0.1],
    (N, "n"): [1.0, 0.5], (L, "b"): [0.5, 0.5, 0.1], (L, "a"): [6.0, 5.0, 4.0, 3.0, 2.0, 1.0],
}  # fmt: skip
ROWS = [
    (f"{L}:a", "5;4;3;2;1;0"), (f"{L}:b", "2;0;1"), (f"{N}:n", "1;0"), (f"{T}:k1", "2;1;0"),
    (f"{T}:k2", "6;1;2;5;4"),
]  # fmt: skip


def make_ranking(scores: dict[tuple[str, str], list[float]], seed: int = 0) -> pl.DataFrame:
    """A ranking with its rows in random order."""
    rows = [(*key, config, score) for key, v in scores.items() for config, score in enumerate(v)]
    random.Random(seed).shuffle(rows)
    return pl.DataFrame(rows, schema=RANKING_SCHEMA, orient="row")


def read_rows(path: Path) -> list[tuple[str, ...]]:
    with path.open(newline="", encoding="utf-8") as file:
        return [tuple(row) for row in csv.reader(file)]


def write_sample(folder: Path, rows: list[tuple[str, str]]) -> Path:
    path = folder / "sample_submission.csv"
    path.write_text("ID,TopConfigs\n" + "".join(f"{a},{b}\n" for a, b in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("seed", range(3))
def test_without_a_sample_the_test_split_decides(tmp_path: Path, seed: int) -> None:
    """Collections in the project's order, graphs by name, ties in the order of the file."""
    path = tmp_path / "submission.csv"
    written = write_submission(make_ranking(SCORES, seed), GRAPHS, None, path)
    assert read_rows(path) == [("ID", "TopConfigs"), *ROWS]
    assert written == Written(path, 5, 0, 0, describe_file(path))
    assert b"\r" not in path.read_bytes()


def test_a_sample_decides_rows_and_order(tmp_path: Path) -> None:
    asked = [(f"{T}:k2", "0;1;2;3;4"), (f"{T}:far", "3;1;2;0;4"), (f"{L}:b", "0;1;2")]
    path = tmp_path / "submission.csv"
    sample = write_sample(tmp_path, asked)
    sample.write_text(sample.read_text() + "\n")  # editors leave a blank line
    written = write_submission(make_ranking(SCORES), GRAPHS, sample, path)
    by_name = dict(ROWS)
    expected = [(f"{T}:k2", by_name[f"{T}:k2"]), asked[1], (f"{L}:b", by_name[f"{L}:b"])]
    assert read_rows(path)[1:] == expected
    assert written == Written(path, 3, 1, 3, describe_file(path))
    assert "1 of" in written.describe()
    assert "3 test" in written.describe()
    assert "data folder lacks" in written.describe()


def test_rows_that_are_copied_are_explained_by_what_the_run_took(tmp_path: Path) -> None:
    path = tmp_path / "submission.csv"
    sample = write_sample(tmp_path, [(f"{T}:k1", "0;1;2"), (f"{L}:b", "0;1;2")])
    tiles = GRAPHS.filter(collection=T)
    written = write_submission(make_ranking(SCORES), tiles, sample, path)
    assert (written.kept, written.lacking) == (1, (L,))
    assert f"no test graph of {L}" in written.describe()
    assert "--collection" in written.describe()
    quick = dataclasses.replace(written, is_quick=True).describe()
    assert "--limit" in quick and "data folder" not in quick


@pytest.mark.parametrize(
    "text",
    [
        "", "ID\n", "id,configs\na,0\n", "ID,TopConfigs\na\n", "ID,TopConfigs\na,0,1\n",
        "ID,TopConfigs\na,0\na,0\n", "ID,TopConfigs\na,\n", "ID,TopConfigs\na,first\n",
    ],
)  # fmt: skip
def test_a_broken_sample_is_refused_by_name(tmp_path: Path, text: str) -> None:
    sample = tmp_path / "sample_submission.csv"
    sample.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"sample_submission\.csv"):
        write_submission(make_ranking(SCORES), GRAPHS, sample, tmp_path / "submission.csv")


def broken_rankings() -> dict[str, pl.DataFrame]:
    whole = make_ranking(SCORES)
    of_graph = pl.col("graph") == "a"
    return {
        "graph missing": whole.filter(~of_graph),
        "configuration missing": whole.filter(~(of_graph & (pl.col("config") == 2))),
        "configuration unknown": whole.with_columns(
            pl.when(of_graph & (pl.col("config") == 2)).then(9).otherwise("config").alias("config")
        ),
        "configuration twice": pl.concat([whole, whole.filter(of_graph).head(1)]),
    }


@pytest.mark.parametrize("defect", broken_rankings())
def test_a_broken_ranking_leaves_what_was_there(tmp_path: Path, defect: str) -> None:
    path, ranking = tmp_path / "submission.csv", broken_rankings()[defect]
    with pytest.raises(InputError, match=f"{L}:a") as caught:
        write_submission(ranking, GRAPHS, None, path)
    assert list(tmp_path.iterdir()) == []
    assert "submission.csv" in str(caught.value) and ".partial-" not in str(caught.value)
    write_submission(make_ranking(SCORES), GRAPHS, None, path)
    before = path.read_bytes()
    with pytest.raises(InputError):
        write_submission(ranking, GRAPHS, None, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


EXPECTED = Expected({f"{T}:k2": 7, f"{T}:k1": 3, f"{L}:b": 3, f"{L}:far": None}, "a test")
GOOD = [f"{T}:k2,6;1;2;5;4", f"{T}:k1,2;1;0", f"{L}:b,2;0;1", f"{L}:far,7;8"]


def check(folder: Path, lines: list[str], header: str = "ID,TopConfigs") -> int:
    path = folder / "submission.csv"
    path.write_text("".join(f"{line}\n" for line in [header, *lines]), encoding="utf-8")
    return check_submission(path, EXPECTED)


@given(st.permutations(GOOD))
@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_the_checker_accepts_a_good_file_in_any_order(tmp_path: Path, lines: list[str]) -> None:
    assert check(tmp_path, lines) == 4


@pytest.mark.parametrize("header", ["", "ID", "id,topconfigs", "TopConfigs,ID", "ID,TopConfigs,x"])
def test_the_checker_refuses_a_wrong_header(tmp_path: Path, header: str) -> None:
    with pytest.raises(InputError, match="ID,TopConfigs"):
        check(tmp_path, GOOD, header)


@pytest.mark.parametrize(
    ("header", "lines"),
    [("x" * 10**6, GOOD), (None, [*GOOD, "y" * 10**6 + ",0"]), (None, 2 * [f"{'z' * 10**6},0"])],
)
def test_a_long_line_is_quoted_in_part(
    header: str | None, lines: list[str], tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        check(tmp_path, lines, *filter(None, [header]))
    assert 100 < len(str(caught.value)) < 1500


def test_a_folder_in_place_of_a_submission_is_called_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"^{tmp_path}: is a folder.*submission.csv"):
        check_submission(tmp_path, Expected({}, "the test split"))


def test_files_without_rows_are_refused_and_leave_no_submission(tmp_path: Path) -> None:
    path = tmp_path / "submission.csv"
    path.write_text("ID,TopConfigs\n")
    with pytest.raises(InputError, match="no rows"):
        check_submission(path, Expected({}, "nothing"))
    path.unlink()
    with pytest.raises(InputError, match=r"sample_submission\.csv"):
        write_submission(make_ranking(SCORES), GRAPHS, write_sample(tmp_path, []), path)
    assert not path.exists()


def test_data_without_a_test_split_has_no_submission(tmp_path: Path) -> None:
    path = tmp_path / "submission.csv"
    path.write_text("of an earlier run")
    graphs = GRAPHS.filter(pl.col("split") != "test")
    written = write_submission(make_ranking({}), graphs, None, path)
    assert written.rows == 0
    assert "Submission: none" in written.describe()
    assert not path.exists()


@pytest.mark.parametrize(("lines", "message"), [
    (GOOD[1:], "lacks 1 ID"), ([], "lacks 4 ID"), ([*GOOD, f"{T}:k9,0"], "has 1 ID"),
    ([*GOOD, GOOD[0]], "repeats 1 ID"), ([*GOOD, ""], "expected.*2.*0"),
    ([f"{GOOD[0]},1", *GOOD[1:]], "2.*expected.*2.*3"),
])  # fmt: skip
def test_the_checker_refuses_wrong_rows(tmp_path: Path, lines: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check(tmp_path, lines)


@pytest.mark.parametrize(("row", "configs", "message"), [
    (2, "2;0;2", "index 2 is repeated"), (2, "02;0;2", "index 2 is repeated"),
    (2, "2;0", "expected 3 indices, found 2"), (2, "2;0;3", "index 3 is out of range"),
    (2, "2;0;-1", "expected indices joined"), (2, "2;0;1.0", "expected indices joined"),
    (2, "2;0;one", "indices joined.*'one' at place 3 of 3"),
    (2, "0;" * 5000 + "1 0;2", "indices joined.*'1 0' at place 5001 of 5002"),
    (2, "2;0;²", "expected indices joined"),
    (2, "2 0 1", "expected indices joined"), (2, "2;0;1;", "expected indices joined"),
    (2, "2;0;" + "9" * 5000, "expected indices joined"), (2, "", "expected indices joined"),
    (0, "6;1;2;5", "expected 5 indices, found 4"),
    (0, "6;1;2;5;4;3", "expected 5 indices, found 6"), (0, "", "expected indices joined"),
    (1, "2;1", "expected 3 indices, found 2"), (3, "", "expected indices joined"),
    (3, "7;7", "index 7 is repeated"),
])  # fmt: skip
def test_wrong_indices_are_named_by_line(
    tmp_path: Path, row: int, configs: str, message: str
) -> None:
    lines = list(GOOD)
    lines[row] = lines[row].split(",")[0] + "," + configs
    with pytest.raises(InputError, match=f"line {row + 2}, .*{message}"):
        check(tmp_path, lines)


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe\x00"])
def test_the_checker_refuses_what_is_no_table(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "submission.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"submission\.csv"):
        check_submission(path, EXPECTED)


def test_a_graph_of_very_many_configurations_is_written_and_checked(tmp_path: Path) -> None:
    """As many as a real training graph has: a row of 275 kB."""
    count = 47_712
    graphs = pl.DataFrame([(L, "huge", "test", count)], schema=GRAPHS.schema, orient="row")
    ranking = make_ranking({(L, "huge"): [float(-config) for config in range(count)]})
    path = tmp_path / "submission.csv"
    assert write_submission(ranking, graphs, None, path).rows == 1
    assert path.read_text(encoding="utf-8").startswith(f"ID,TopConfigs\n{L}:huge,47711;47710;")


def test_a_name_may_have_a_colon(tmp_path: Path) -> None:
    graphs = pl.DataFrame([("tile:xla", "a:b", "test", 3)], schema=GRAPHS.schema, orient="row")
    ranking = make_ranking({("tile:xla", "a:b"): [3.0, 1.0, 2.0]})
    write_submission(ranking, graphs, None, tmp_path / "submission.csv")
    assert read_rows(tmp_path / "submission.csv")[1] == ("tile:xla:a:b", "1;2;0")


def test_the_real_sample_has_the_rows_of_every_collection(tpu: Path, tmp_path: Path) -> None:
    sample = tpu / "sample_submission.csv"
    path = tmp_path / "submission.csv"
    written = write_submission(make_ranking({}), GRAPHS.clear(), sample, path)
    rows = read_rows(path)
    assert rows == read_rows(sample)
    assert (written.rows, written.kept) == (894, 894)
    names = [name.rpartition(":")[0] for name, _ in rows[1:]]
    for collection in COLLECTIONS:
        assert names.count(collection.name) == collection.test_rows
