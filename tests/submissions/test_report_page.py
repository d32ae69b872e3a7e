"""The report: complete, accessible, in need of nothing else, and honest about what is not there."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ensembles.merge import merge_run
from ensembles.recipe import Recipe, find_recipe
from solution.domain import predictions
from solution.domain.metrics import kendall_tau
from solution.experiments.base import find_experiment
from solution.runs.folder import Run
from solution.runs.record import open_run
from solution.store.store import Store
from solution.system.errors import InputError
from solution.training.jobs import find_backlog
from solution.training.opening import save_split
from solution.training.out_of_fold import run_experiments
from solution.training.plan import make_plan
from submissions.build import collect_scores
from submissions.page.build import write_page
from submissions.page.evidence import Evidence
from submissions.page.labels import MEDIAN_GAP, simulate
from submissions.page.scores import describe_leaderboard
from tests.chromium import CHROMIUM, Browser, browse
from tests.conftest import FastSlow, assert_done
from tests.made.run import LEDGER, RECIPE, make_run

EVERY = ["scores", "graphs", "agreement", "weights", "gains", "optimism", "runtimes", "curves",
         "ceiling", "leaderboard", "making"]  # fmt: skip
VOID = {"meta", "link", "br"}
LOADING = {"src", "href", "xlink:href", "srcset", "data", "action", "poster"}


class Page(HTMLParser):
    """What stands in the page, and whether its elements are closed in order."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[str] = []
        self.sections: dict[str, dict[str, int]] = {}
        self.words: dict[str, str] = {}
        self.section = ""
        self.path = path
        self.text = path.read_text(encoding="utf-8")
        self.feed(self.text)
        assert not self.inside

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.elements.append((tag, found))
        if tag not in VOID:
            self.inside.append(tag)
        if tag == "section":
            self.section = found["id"] or ""
            self.sections[self.section] = {}
        counts = self.sections.get(self.section, {})
        counts[tag] = counts.get(tag, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        assert self.inside.pop() == tag, self.getpos()

    def handle_data(self, data: str) -> None:
        self.words[self.section] = self.words.get(self.section, "") + data

    def said(self, section: str) -> str:
        """Its words, spaces evened out."""
        return " ".join(self.words[section].split())


def make_recipe(folder: Path) -> Recipe:
    path = folder / "mine.toml"
    path.write_text(RECIPE, encoding="utf-8")
    return find_recipe(str(path))


def report(folder: Path, ledger: str | None = LEDGER, **parts: object) -> Page:
    """The page of a made run."""
    if ledger is not None:
        (folder / "ledger.csv").write_text(ledger, encoding="utf-8")
    run = make_run(folder / "run", **parts)  # type: ignore[arg-type]
    return Page(write_page(run, make_recipe(folder), None, folder / "ledger.csv"))


def assert_stands_alone(page: Page) -> None:
    """No script, nothing that is loaded, and words for every picture."""
    assert "http-equiv" in page.text and "default-src 'none'" in page.text
    assert not {"script", "img", "iframe", "object"} & {tag for tag, _ in page.elements}
    assert "http" not in page.text.replace("http-equiv", "")
    assert "@import" not in page.text and "url(" not in page.text
    for tag, attributes in page.elements:
        for name in LOADING & set(attributes):
            assert (attributes[name] or "").startswith(("#", "data:,")), (tag, attributes)
        if tag == "svg":
            assert attributes["role"] == "img"
            assert len(attributes["aria-label"] or "") > 20
            assert "nan" not in (attributes["aria-label"] or "").lower().split()
    numbers = [v for t, a in page.elements if t in ("circle", "line", "rect", "path")
               for v in a.values()]  # fmt: skip
    assert not any("nan" in (value or "") or "inf" in (value or "") for value in numbers)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of all collections, merged; not to be changed."""
    folder = tmp_path_factory.mktemp("whole")
    run = make_run(folder / "run")
    merge_run(run, make_recipe(folder))
    return run


def test_everything_is_shown_with_words_and_a_table_behind_it(whole: Run, tmp_path: Path) -> None:
    (tmp_path / "ledger.csv").write_text(LEDGER, encoding="utf-8")
    recipe = make_recipe(tmp_path)
    page = Page(write_page(whole, recipe, tmp_path / "page.html", tmp_path / "ledger.csv"))
    assert_stands_alone(page)
    assert list(page.sections) == EVERY
    for name, counts in page.sections.items():
        assert counts["details"] >= 1 and counts["table"] >= 1, name
        assert name == "making" or counts["svg"] >= 1, name
    links = [a["href"] for tag, a in page.elements if tag == "a"]
    assert links == [f"#{name}" for name in EVERY]
    assert "graph_0<&>" in page.said("graphs")
    assert re.search(r"<text[^>]*>0\.\d{3}</text>", page.text)
    assert "mean of" in page.said("scores")
    assert "public score: 1.000" in page.said("leaderboard")
    assert all(fact in page.said("ceiling") for fact in ("No repeats", "layout:nlp:default"))


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    first = report(tmp_path, collections=("tile:xla", "layout:nlp:random"))
    path = tmp_path / "again.html"
    recipe, run = find_recipe(str(tmp_path / "mine.toml")), Run.existing(tmp_path / "run")
    assert write_page(run, recipe, path, tmp_path / "ledger.csv") == path
    assert path.read_text(encoding="utf-8") == first.text


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    """No ledger, no curves, no repeats, one graph in one collection: words instead of pictures."""
    parts = {"noise": False, "curves": False, "graphs": 1, "collections": ("tile:xla",)}
    page = report(tmp_path, ledger=None, **parts)
    assert_stands_alone(page)
    assert list(page.sections) == EVERY
    for name, words in {
        "optimism": "Unknown for this run",
        "curves": "fastslow run --replace",
        "ceiling": "Unknown for this run",
        "leaderboard": "make submit",
    }.items():
        assert "svg" not in page.sections[name]
        assert words in page.said(name)
    assert "too few" in page.said("scores")
    assert "not all" in page.said("")


def test_the_page_and_the_table_have_one_score_of_a_model(whole: Run, tmp_path: Path) -> None:
    """The score of its averaged seeds, with one interval; a single seed has another column."""
    recipe = make_recipe(tmp_path)
    scores, evidence = collect_scores(whole, recipe), Evidence(whole, recipe)
    table = {(line.ranker, line.collection.name): line for line in scores.lines}
    overall = evidence.overall(evidence.ensemble)
    assert overall is not None and scores.overall == overall
    assert overall.low < overall.value < overall.high
    for mean in evidence.means.iter_rows(named=True):
        shown = table[mean["member"], mean["collection"]].score
        assert (shown.low, shown.value, shown.high) == (mean["low"], mean["value"], mean["high"])
    with_seeds = [line for line in table.values() if line.ranker == "net_001"]
    assert all(line.a_seed is not None and line.a_seed < line.score.value for line in with_seeds)
    without = [line for line in table.values() if line.ranker == "trees_001"]
    assert all(line.a_seed is None for line in without)
    merged = evidence.means.filter(collection="tile:xla", member="net_001")["value"][0]
    words = write_page(whole, recipe, tmp_path / "page.html").read_text(encoding="utf-8")
    assert f">{merged:.3f}<" in words and " (2)<" in words and "±0.0" in words


def test_a_page_names_the_members_that_the_run_lacks(whole: Run, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('allow_missing = ["members"]\n[members]\nnet_001 = 1\nabsent_001 = 3\n')
    page = Page(write_page(whole, find_recipe(str(path)), tmp_path / "page.html"))
    assert "absent_001 (75% of the weight" in page.said("")
    assert "net_001" in page.said("weights")
    assert "absent_001" not in page.said("weights")


def test_an_experiment_that_held_out_nothing_stops_no_report(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", collections=("tile:xla",))
    nothing = pl.DataFrame(schema=predictions.SCHEMA)
    predictions.write(nothing, run.predictions("trees_001", "out_of_fold"))
    page = Page(write_page(run, make_recipe(tmp_path)))
    assert_stands_alone(page)
    assert list(page.sections) == EVERY
    assert "trees_001" not in page.said("scores")


def test_losses_and_ordered_pairs_are_drawn_where_they_were_kept(tmp_path: Path) -> None:
    page = report(tmp_path, collections=("tile:xla",))
    said = page.said("curves")
    assert page.sections["curves"]["svg"] == 2 + 2  # a score for both rankers; loss, pairs of one
    assert "Volatility" in said
    assert "0.012" in said
    assert "from 1.000 to 0.525" in page.text
    assert "from 1.100 to 0.720" in page.text
    assert "from 0.500 to 0.690" in page.text
    assert "stroke-dasharray" in page.text


def test_a_real_run_by_command(
    cold_fastslow: FastSlow, sample_store: Store, tmp_path: Path
) -> None:
    experiments = [find_experiment(name) for name in ("nothing_001", "tile_lightgbm_001")]
    plan = make_plan(sample_store, "architecture", 2, limit=True)
    settings = {"experiments": {item.name: item.describe() for item in experiments}}
    with open_run(tmp_path / "out", settings) as run:
        save_split(plan, run)
        run_experiments(find_backlog(experiments, plan, run), plan, run)
    (tmp_path / "mine.toml").write_text("[members]\ntile_lightgbm_001 = 1\nnothing_001 = 1\n")
    done = cold_fastslow("report", "--run", "out", "--recipe", "mine.toml")
    assert assert_done(done).strip() == "Report: out/report.html"
    page = Page(tmp_path / "out" / "report.html")
    assert_stands_alone(page)
    assert page.sections["curves"]["svg"] == 1
    assert "LightGBMSettings" in page.said("making")


def test_a_run_without_predictions_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", graphs=0)
    with pytest.raises(InputError, match="found none"):
        write_page(run, make_recipe(tmp_path))


def test_the_page_reads_the_ledger_as_all_commands_do(tmp_path: Path) -> None:
    """Two lines of a key, as a merge leaves them, are one submission; marks of one are refused."""
    path = tmp_path / "ledger.csv"
    path.write_text("key,oof_mean,public\nx,nan,0.5\ny,0.6,\ny,,0.7\nz,0.5,0\nw,0.7,0.8\n")
    section = describe_leaderboard(path)
    assert [tuple(row[:1] + row[3:5]) for row in section.tables[0].rows] == [
        ("x", "–", "0.500"), ("y", "0.600", "0.700"), ("z", "0.500", "0.000"),
        ("w", "0.700", "0.800"),
    ]  # fmt: skip
    assert len(section.figures) == 1
    assert "public score: 1.000" in section.lead
    path.write_text("key,oof_mean\n<<<<<<< mine\nx,0.5\n")
    with pytest.raises(InputError, match="an unresolved"):
        describe_leaderboard(path)


def test_the_ceiling_finds_the_noise_that_was_put_in() -> None:
    """Two timings of the same truth agree about as much as the estimate says."""
    generator = np.random.default_rng(1)
    truth, deviation = np.exp(generator.normal(0, 0.3, 800)), 0.1
    noise = float(np.expm1(deviation * MEDIAN_GAP))
    timings = truth * np.exp(deviation * generator.standard_normal((2, 800)))
    ceiling, repeat = simulate("layout:xla:random", truth, noise)
    assert ceiling == pytest.approx(kendall_tau(truth, timings[0]), abs=0.03)
    assert repeat == pytest.approx(kendall_tau(timings[0], timings[1]), abs=0.03)
    assert simulate("layout:xla:random", truth, 1e-9)[0] == pytest.approx(1, abs=1e-3)
    assert ceiling > repeat
    pairs = deviation * generator.standard_normal((2, 100_000))
    assert np.median(np.abs(pairs[0] - pairs[1])) == pytest.approx(MEDIAN_GAP * deviation, rel=0.02)


def test_the_ledger_is_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTSLOW_SUBMISSIONS", str(tmp_path))
    (tmp_path / "ledger.csv").write_text("key,recipe,oof_mean,public\nk,mine,0.5,0.777\n")
    run = make_run(tmp_path / "run", collections=("tile:xla",))
    page = write_page(run, make_recipe(tmp_path))
    assert "0.777" in page.read_text(encoding="utf-8")


OVERFLOW = "document.scrollingElement.scrollWidth - innerWidth"
OUTSIDE = """[...document.querySelectorAll('figure, h1, h2, p, summary')].filter(
    e => e.getBoundingClientRect().right > innerWidth + 0.5).length"""
SMALLEST = """Math.min(...[...document.querySelectorAll('svg')].map(
    e => e.getBoundingClientRect().width / e.viewBox.baseVal.width))"""
CONTRAST = """(() => {
    const light = c => c.match(/\\d+/g).slice(0, 3).map(Number).map(v => v / 255)
        .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const paper = light(getComputedStyle(document.body).backgroundColor);
    const ratio = v => (Math.max(v, paper) + 0.05) / (Math.min(v, paper) + 0.05);
    const words = [...document.querySelectorAll('p, td, th, a, summary, figcaption')]
        .map(e => getComputedStyle(e).color);
    const drawn = [...document.querySelectorAll('svg text')]
        .map(e => getComputedStyle(e).fill);
    return [Math.min(...[...words, ...drawn].map(light).map(ratio)), paper];
})()"""


@pytest.fixture(scope="module")
def wide_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of so many experiments that the heat map is wider than a phone."""
    return report(tmp_path_factory.mktemp("report"), graphs=4, more=4).path


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browse(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.mark.skipif(not CHROMIUM.is_file(), reason="apt-get install chromium")
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 360, 768, 1280])
def test_it_fits_and_asks_for_nothing(
    width: int, theme: str, wide_page: Path, browser: Browser
) -> None:
    """In a real browser: no network, no complaint; it fits a phone, light and dark."""
    browser.open(wide_page, width, theme)
    browser.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")
    assert browser.evaluate("document.querySelectorAll('svg').length") > 20
    assert browser.evaluate(OVERFLOW) <= 0
    assert browser.evaluate(OUTSIDE) == 0
    assert browser.evaluate(SMALLEST) > 0.85  # so words of 12 units have 10 pixels or more
    contrast, paper = browser.evaluate(CONTRAST)
    assert contrast >= 4.5
    assert (paper < 0.2) == (theme == "dark")
    asked = [request["request"]["url"] for request in browser.found("Network.requestWillBeSent")]
    assert asked == [wide_page.resolve().as_uri()]
    assert not browser.found("Log.entryAdded")
    assert not browser.found("Runtime.exceptionThrown")
    assert not browser.found("Runtime.consoleAPICalled")
