"""A sample that a spreadsheet saved again serves; a submission is checked as it is."""

import codecs
from pathlib import Path

import pytest

from solution.system.errors import InputError
from submissions.writer import Expected, check_submission, write_submission
from tests.submissions.test_submission import (
    GRAPHS,
    SCORES,
    L,
    make_ranking,
    read_rows,
    write_sample,
)


def test_a_sample_may_have_a_byte_order_mark_and_a_submission_not(tmp_path: Path) -> None:
    sample = write_sample(tmp_path, [(f"{L}:b", "0;1;2")])
    sample.write_bytes(codecs.BOM_UTF8 + sample.read_bytes())
    path = tmp_path / "submission.csv"
    write_submission(make_ranking(SCORES), GRAPHS, sample, path)
    assert read_rows(path)[1:] == [(f"{L}:b", "2;0;1")]
    path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())
    with pytest.raises(InputError, match="header"):
        check_submission(path, Expected({f"{L}:b": 3}, "the sample"))
