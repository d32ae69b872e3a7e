"""Make the pictures of the documentation's pages: `python -m benchmarks.site_pictures RUN`.

RUN is a finished run of the sample. A report page is photographed in Chromium; `explain` and a
search (`choose`, which times configurations for some 20 s) draw their pictures themselves. All are
written to docs/pictures with 128 colours, so that the repository stays small.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from tests.chromium import browse

REPOSITORY = Path(__file__).parent.parent
PICTURES = REPOSITORY / "docs" / "pictures"
WIDTH = 1000  # pixels


def main(run: Path) -> None:
    """Write report.png, explain.png and search.png."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _call("report", "--run", run, "--out", folder / "report.html")
        _call("explain", "tile_lightgbm_001", "bmm_020", "--run", run, "--out", folder)
        program = REPOSITORY / "solution" / "collecting" / "examples" / "cnn.py"
        _call("choose", program, "--measure", "24", "--out", folder / "chosen")
        with browse(folder / "profile") as browser:
            browser.open(folder / "report.html", WIDTH, "light")
            browser.photograph(folder / "page.png")
        _save(folder / "page.png", "report", height=1400)
        _save(folder / "contributions.png", "explain")
        _save(folder / "chosen" / "search.png", "search")


def _call(*words: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "solution", *map(str, words)], check=True)


def _save(source: Path, name: str, height: int | None = None) -> None:
    """Write a picture at the width of a page, cut after `height` pixels."""
    with Image.open(source) as opened:
        picture = opened.convert("RGB")
    picture = picture.resize((WIDTH, round(picture.height * WIDTH / picture.width)))
    if height is not None:
        picture = picture.crop((0, 0, WIDTH, min(height, picture.height)))
    picture.quantize(128).save(PICTURES / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
