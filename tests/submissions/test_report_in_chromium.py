"""The report in a real browser: no network, no complaint, and it fits a phone, light and dark."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ensembles.recipe import find_recipe
from submissions.page.build import write_page
from tests.chromium import CHROMIUM, Browser, browse
from tests.made.run import LEDGER, RECIPE, make_run

pytestmark = pytest.mark.skipif(
    not CHROMIUM.is_file(), reason=f"{CHROMIUM} is not here: apt-get install chromium"
)
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
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    (folder / "mine.toml").write_text(RECIPE, encoding="utf-8")
    (folder / "ledger.csv").write_text(LEDGER, encoding="utf-8")
    run = make_run(
        folder / "run", graphs=4, more=4
    )  # so many that the heat map is wider than a phone
    return write_page(run, find_recipe(str(folder / "mine.toml")), None, folder / "ledger.csv")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browse(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 360, 768, 1280])
def test_it_fits_and_asks_for_nothing(width: int, theme: str, page: Path, browser: Browser) -> None:
    browser.open(page, width, theme)
    browser.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")
    assert browser.evaluate("document.querySelectorAll('svg').length") > 20
    assert browser.evaluate(OVERFLOW) <= 0
    assert browser.evaluate(OUTSIDE) == 0
    assert browser.evaluate(SMALLEST) > 0.85  # so words of 12 units have 10 pixels or more
    contrast, paper = browser.evaluate(CONTRAST)
    assert contrast >= 4.5
    assert (paper < 0.2) == (theme == "dark")
    asked = [request["request"]["url"] for request in browser.found("Network.requestWillBeSent")]
    assert asked == [page.resolve().as_uri()]
    assert not browser.found("Log.entryAdded")
    assert not browser.found("Runtime.exceptionThrown")
    assert not browser.found("Runtime.consoleAPICalled")
