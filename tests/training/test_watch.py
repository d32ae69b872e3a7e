"""What a log says of models in training."""

import re
import time
from contextlib import ExitStack

import pytest

from solution.training.watch import LogLines


def test_the_time_left_counts_from_the_first_of_models_that_are_trained_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with LogLines(4) as lines, ExitStack() as second:
        with lines.job("first"):
            time.sleep(0.5)
            second.enter_context(lines.job("second"))
        lines.advance()
    said = re.search(r"1 of 4  first in .*, about ([\d.]+) s left", capsys.readouterr().err)
    assert said is not None
    assert 1.5 <= float(said[1]) < 30
