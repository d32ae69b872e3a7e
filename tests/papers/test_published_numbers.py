"""Every number that a document is said to report stands in it, and where we print it."""

import re

import pytest

from benchmarks.ablations import MEASURES
from benchmarks.claims import CLAIMS
from benchmarks.paper_systems import LAYOUT_SYSTEMS, TILE_SYSTEMS
from solution.experiments.base import find_experiment
from solution.papers.published_numbers import Number, read_published, tell
from tests.conftest import REPOSITORY, SHARED

SEEDS = SHARED.parent / "seeds"
PUBLISHED = read_published()
NUMBER = re.compile(r"-?\d[\d,]*\.?\d*")
LOG = REPOSITORY / "solution" / "experiments" / "LOG.md"


def plain(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("name", PUBLISHED.numbers)
def test_a_number_stands_in_the_words_that_are_quoted(name: str) -> None:
    number = PUBLISHED.numbers[name]
    if not number.quote:
        assert not PUBLISHED.documents[number.document].file, f"{name}: quote the document"
        return
    values = [float(found.replace(",", "")) for found in NUMBER.findall(number.quote)]
    assert number.value in values


@pytest.mark.parametrize("name", PUBLISHED.numbers)
def test_what_is_quoted_stands_in_the_document(name: str) -> None:
    number = PUBLISHED.numbers[name]
    beginning = PUBLISHED.documents[number.document].file
    texts = sorted(SEEDS.glob(f"{beginning}*.txt")) if beginning else []
    if not texts:
        pytest.skip("the document's text is not here")
    (path,) = texts
    assert plain(number.quote) in plain(path.read_text(encoding="utf-8"))


def test_a_number_is_told_with_what_it_is_of() -> None:
    assert tell("study_tile_ridge") == "top-5 slowdown of ridge on tiles: 52.5%"
    assert str(Number("study", "", "", 66_000)) == "66,000"


@pytest.mark.parametrize("kind", ["layout", "tile"])
def test_the_log_prints_what_the_documents_report(kind: str) -> None:
    """The last column of the table of costs."""
    systems = LAYOUT_SYSTEMS if kind == "layout" else TILE_SYSTEMS
    found = 0
    for line in LOG.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip().strip("*") for cell in line.strip().strip("|").split("|")]
        if len(cells) == 6 and cells[1] == kind and cells[4].endswith(" MB"):
            assert cells[5] == systems[cells[0]].published
            found += 1
    assert found > 5


def test_every_claim_is_of_experiments_and_of_numbers_that_there_are() -> None:
    for claim in CLAIMS:
        for name in (claim.better, claim.worse):
            assert set(claim.collections) <= set(find_experiment(name).collections)
        assert set(claim.reported) <= set(PUBLISHED.numbers)
        assert claim.measure in MEASURES


def test_the_package_brings_the_file() -> None:
    described = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    assert '"papers/published.toml"' in described
    assert (REPOSITORY / "solution/papers/published.toml").is_file()
