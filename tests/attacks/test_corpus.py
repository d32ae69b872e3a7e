"""Every input that a fuzzer has found worth keeping is read, or refused by name."""

from pathlib import Path

import pytest

from tests.attacks.targets import MAX_INPUT, TARGETS

CORPUS = Path(__file__).parent / "corpus"


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_is_read_or_refused(name: str) -> None:
    inputs = sorted((CORPUS / name).iterdir())
    assert inputs
    for path in inputs:
        assert path.stat().st_size <= MAX_INPUT, "keep the corpus small"
        TARGETS[name](path.read_bytes())


def test_every_folder_of_the_corpus_has_a_target() -> None:
    assert {path.name for path in CORPUS.iterdir()} == TARGETS.keys()
