"""`fastslow data`: the download goes on where it broke off, is checked, and harms nothing."""

import io
import random
import zipfile
from pathlib import Path

import pytest

from solution.data.folders import SAMPLE
from tests.kaggle.place import Place
from tests.kaggle.test_archive import make_archive
from tests.kaggle.world import DOWNLOAD, GET, Fault

FILES = {
    f"npz_all/{path.relative_to(SAMPLE)}": path.read_bytes()
    for folder in ("layout/xla/random/train", "layout/nlp/default/test", "tile/xla/valid")
    for path in sorted((SAMPLE / "npz" / folder).glob("*.npz"))[:2]
} | {"sample_submission.csv": b"ID,TopConfigs\nlayout:xla:random:a,0\n"}


@pytest.fixture
def place(place: Place) -> Place:
    """With some of the competition's data."""
    place.world.files = dict(FILES)
    place.world.archive = make_archive(list(FILES.items()))
    return place


def found(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_everything_is_downloaded_unpacked_and_checked(place: Place) -> None:
    done = place.call("data", "there")
    assert done.code == 0, done.words
    assert f"{len(FILES)} files." in done.words
    assert f"All {len(FILES) - 1} files are sound" in done.words
    here = found(place.folder / "there")
    assert here.pop("downloaded.json")
    assert here == FILES
    calls = len(place.world.calls)
    assert place.call("data", "there").code == 0
    assert len(place.world.calls) == calls


def test_a_broken_download_goes_on_where_it_was(place: Place) -> None:
    large = ("notes.bin", random.Random(0).randbytes(3 << 20))  # the CLI keeps whole megabytes
    place.world.archive = make_archive([large, *FILES.items()])
    place.world.dropped_at = 5 << 19
    place.world.faults = [Fault(GET, "hangs", first=2)]  # so that this call cannot go on by itself
    place.more["FASTSLOW_DOWNLOAD_SECONDS"] = "4"
    place.more["FASTSLOW_TRIES"] = "1"
    assert place.call("data", "there").code == 2
    assert (place.folder / "there" / "predict-ai-model-runtime.zip").is_file()
    place.world.faults = []
    place.world.calls.clear()
    place.more.clear()
    done = place.call("data", "there")
    assert done.code == 0, done.words
    ranges = [body["range"] for call, body in place.world.calls if call == GET]
    assert f"bytes={2 << 20}-" in ranges
    here = found(place.folder / "there")
    assert {name: here[name] for name in FILES} == FILES


@pytest.mark.parametrize(
    ("archive", "words"),
    [
        (make_archive([("../../escaped", b"x")]), "leads out of the folder"),
        (b"<html>sign in first</html>" * 9, "not a whole zip archive"),
        (make_archive([("npz/layout/xla/random/train/a.npz", b"x")]), "a.npz"),
        (make_archive([("bomb", bytes(3_000_000))]), "more than the 0.0 GB that are allowed"),
    ],
    ids=["that leads out", "that is a page", "of a broken file", "that is too large"],
)
def test_a_bad_archive_harms_nothing(place: Place, archive: bytes, words: str) -> None:
    (place.folder / "mine").write_bytes(b"mine")
    place.world.archive = archive
    done = place.call("data", "there", "--max-gigabytes", "0.001")
    assert done.code == 2, done.words
    assert words in done.words
    assert (place.folder / "mine").read_bytes() == b"mine"
    assert not (place.folder / "escaped").exists()
    if "whole" in words:  # the next call downloads it afresh
        place.world.archive = make_archive(list(FILES.items()))
        assert place.call("data", "there").code == 0


def test_one_collection(place: Place) -> None:
    wanted = {name for name in FILES if "/nlp/default/" in name} | {"sample_submission.csv"}
    place.world.page_size = 3  # the list comes in pages
    place.world.faults = [Fault(GET, "500", first=2, times=1)]
    place.more["FASTSLOW_TRIES"] = "1"
    options = ("data", "there", "--collection", "layout:nlp:default")
    assert place.call(*options).code == 2  # breaks off in the middle
    place.world.faults = []
    place.world.calls.clear()
    done = place.call(*options)
    assert done.code == 0, done.words
    assert found(place.folder / "there") == {name: FILES[name] for name in wanted}
    assert place.world.count(GET) == len(wanted) - 1


def _zip_the_sample(place: Place, *members: tuple[str, bytes]) -> None:
    """Let Kaggle send NAME.zip for the sample submission, as it does for large text files."""
    world, name = place.world, "sample_submission.csv"
    world.files[f"{name}.zip"] = make_archive(list(members))
    listed, sent = world.on_ListDataFiles, world.on_DownloadDataFile
    world.on_ListDataFiles = lambda body: {  # type: ignore[method-assign]
        **(reply := listed(body)),
        "files": [file for file in reply["files"] if not file["name"].endswith(".zip")],
    }
    world.on_DownloadDataFile = lambda body: sent(  # type: ignore[method-assign]
        {"fileName": f"{name}.zip"} if body["fileName"] == name else body
    )


def test_a_single_file_that_arrives_zipped(place: Place) -> None:
    name = "sample_submission.csv"
    _zip_the_sample(place, (name, FILES[name]))
    options = ("data", "there", "--collection", "layout:nlp:default")
    done = place.call(*options)
    assert done.code == 0, done.words
    here = found(place.folder / "there")
    assert here == {name: FILES[name] for name in FILES if name in here}
    assert here[name] == FILES[name]
    calls = place.world.count(GET)
    assert place.call(*options).code == 0
    assert place.world.count(GET) == calls


@pytest.mark.parametrize(
    "members",
    [
        [("../sample_submission.csv", FILES["sample_submission.csv"])],
        [("sample_submission.csv", bytes(10**7))],
        [("sample_submission.csv", b"short")],
        [("other.csv", FILES["sample_submission.csv"])],
        [("sample_submission.csv", b"a"), ("other.csv", b"b")],
    ],
    ids=["leads out", "bomb", "short", "another", "two"],
)
def test_a_bad_zip_of_a_single_file_harms_nothing(
    place: Place, members: list[tuple[str, bytes]]
) -> None:
    _zip_the_sample(place, *members)
    options = ("data", "there", "--collection", "layout:nlp:default")
    done = place.call(*options)
    assert done.code == 2, done.words
    assert "sample_submission.csv: expected" in done.words
    assert not [name for name in found(place.folder) if name.endswith(".csv") and "run" not in name]
    place.world.files["sample_submission.csv.zip"] = make_archive(
        [("sample_submission.csv", FILES["sample_submission.csv"])]
    )
    assert place.call(*options).code == 0


def test_what_is_there_is_never_overwritten(place: Place) -> None:
    path = place.folder / "there" / "sample_submission.csv"
    path.parent.mkdir()
    path.write_bytes(b"mine")
    for options in ([], ["--collection", "layout:nlp:default"]):
        done = place.call("data", "there", *options)
        assert done.code == 2
        assert all(fact in done.words for fact in ("sample_submission.csv", "already"))
        assert path.read_bytes() == b"mine"


def test_the_refusals_of_kaggle_are_told(place: Place) -> None:
    place.world.faults = [Fault(DOWNLOAD, "403")]
    done = place.call("data", "there")
    assert done.code == 2
    assert "not accepted" in done.words
    unknown = place.call("data", "there", "--collection", "layout:gpu:random")
    assert unknown.code == 2
    assert "not a collection" in unknown.words


def test_the_stand_in_gives_what_it_is_asked() -> None:
    archive = zipfile.ZipFile(io.BytesIO(make_archive(list(FILES.items()))))
    assert {name: archive.read(name) for name in archive.namelist()} == FILES
