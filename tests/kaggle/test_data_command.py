"""`fastslow data`: the download goes on where it broke off, is checked, and harms nothing."""

import io
import random
import stat
import zipfile
from functools import partial
from pathlib import Path

import pytest

from solution.data.folders import SAMPLE
from solution.system.errors import InputError
from submissions.download import DamagedError, unpack_download
from tests.kaggle.desk import Desk, check
from tests.kaggle.world import DOWNLOAD, GET, Fault, World

LIMIT = 10_000_000
Entries = list[tuple[str | zipfile.ZipInfo, bytes]]


def special(name: str, kind: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.create_system = 3
    entry.external_attr = (kind | 0o777) << 16
    return entry


def make_archive(entries: Entries) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries:
            archive.writestr(name, data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


FILES = {
    f"npz_all/{path.relative_to(SAMPLE)}": path.read_bytes()
    for folder in ("layout/xla/random/train", "layout/nlp/default/test", "tile/xla/valid")
    for path in sorted((SAMPLE / "npz" / folder).glob("*.npz"))[:2]
} | {"sample_submission.csv": b"ID,TopConfigs\nlayout:xla:random:a,0\n"}


@pytest.fixture
def desk(desk: Desk) -> Desk:
    """With some of the competition's data."""
    desk.world.files = dict(FILES)
    desk.world.archive = make_archive(list(FILES.items()))
    return desk


def found(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_everything_is_downloaded_unpacked_and_checked(desk: Desk) -> None:
    said = (f"{len(FILES)} files.", f"All {len(FILES) - 1} files are sound")
    check(desk.call("data", "there"), 0, *said)
    here = found(desk.folder / "there")
    assert here.pop("downloaded.json")
    assert here == FILES
    calls = len(desk.world.calls)
    assert desk.call("data", "there").code == 0
    assert len(desk.world.calls) == calls


def test_a_broken_download_goes_on_where_it_was(desk: Desk) -> None:
    large = ("notes.bin", random.Random(0).randbytes(3 << 20))  # the CLI keeps whole megabytes
    desk.world.archive = make_archive([large, *FILES.items()])
    desk.world.dropped_at = 5 << 19
    desk.world.faults = [Fault(GET, "hangs", first=2)]  # so that this call cannot go on by itself
    desk.more["FASTSLOW_DOWNLOAD_SECONDS"] = "4"
    desk.more["FASTSLOW_TRIES"] = "1"
    assert desk.call("data", "there").code == 2
    assert (desk.folder / "there" / "predict-ai-model-runtime.zip").is_file()
    desk.world.faults = []
    desk.world.calls.clear()
    desk.more.clear()
    check(desk.call("data", "there"))
    ranges = [body["range"] for call, body in desk.world.calls if call == GET]
    assert f"bytes={2 << 20}-" in ranges
    here = found(desk.folder / "there")
    assert {name: here[name] for name in FILES} == FILES


@pytest.mark.parametrize(("archive", "words"), [
    (make_archive([("../../escaped", b"x")]), "leads out of the folder"),
    (b"<html>sign in first</html>" * 9, "not a complete zip archive"),
    (make_archive([("npz/layout/xla/random/train/a.npz", b"x")]), "a.npz"),
    (make_archive([("bomb", bytes(3_000_000))]), "more than the 0.0 GB that are allowed"),
], ids=["that leads out", "that is a page", "of a broken file", "that is too large"])  # fmt: skip
def test_a_bad_archive_harms_nothing(desk: Desk, archive: bytes, words: str) -> None:
    (desk.folder / "mine").write_bytes(b"mine")
    desk.world.archive = archive
    check(desk.call("data", "there", "--max-gigabytes", "0.001"), 2, words)
    assert (desk.folder / "mine").read_bytes() == b"mine"
    assert not (desk.folder / "escaped").exists()
    if "complete" in words:  # the next call downloads it afresh
        desk.world.archive = make_archive(list(FILES.items()))
        assert desk.call("data", "there").code == 0


def test_one_collection(desk: Desk) -> None:
    wanted = {name for name in FILES if "/nlp/default/" in name} | {NAME}
    desk.world.page_size = 3  # the list comes in pages
    desk.world.faults = [Fault(GET, "500", first=2, times=1)]
    desk.more["FASTSLOW_TRIES"] = "1"
    assert desk.call(*ONE).code == 2  # breaks off in the middle
    desk.world.faults = []
    desk.world.calls.clear()
    check(desk.call(*ONE))
    assert found(desk.folder / "there") == {name: FILES[name] for name in wanted}
    assert desk.world.count(GET) == len(wanted) - 1


def _zip_the_sample(desk: Desk, *members: tuple[str, bytes]) -> None:
    """Let Kaggle send NAME.zip for the sample submission, as it does for large text files."""
    world, name = desk.world, "sample_submission.csv"
    world.files[f"{name}.zip"] = make_archive(list(members))
    listed, sent = partial(World.on_ListDataFiles, world), partial(World.on_DownloadDataFile, world)
    world.on_ListDataFiles = lambda body: {  # type: ignore[method-assign]
        **(reply := listed(body)),
        "files": [file for file in reply["files"] if not file["name"].endswith(".zip")],
    }
    world.on_DownloadDataFile = lambda body: sent(  # type: ignore[method-assign]
        {"fileName": f"{name}.zip"} if body["fileName"] == name else body
    )


NAME = "sample_submission.csv"
ONE = ("data", "there", "--collection", "layout:nlp:default")
BAD_ZIPS: list[list[tuple[str, bytes]]] = [  # leads out, bomb, short, another, two
    [(f"../{NAME}", FILES[NAME])], [(NAME, bytes(10**7))], [(NAME, b"short")],
    [("other.csv", FILES[NAME])], [(NAME, b"a"), ("other.csv", b"b")],
]  # fmt: skip


def test_a_single_file_may_arrive_zipped_and_a_bad_zip_harms_nothing(desk: Desk) -> None:
    for members in BAD_ZIPS:
        _zip_the_sample(desk, *members)
        check(desk.call(*ONE), 2, f"{NAME}: expected")
        left = [name for name in found(desk.folder) if name.endswith(".csv") and "run" not in name]
        assert not left, members
    _zip_the_sample(desk, (NAME, FILES[NAME]))
    check(desk.call(*ONE))
    here = found(desk.folder / "there")
    assert here == {name: FILES[name] for name in FILES if name in here}
    assert here[NAME] == FILES[NAME]
    calls = desk.world.count(GET)
    assert desk.call(*ONE).code == 0
    assert desk.world.count(GET) == calls


def test_what_is_there_is_never_overwritten(desk: Desk) -> None:
    path = desk.folder / "there" / "sample_submission.csv"
    path.parent.mkdir()
    path.write_bytes(b"mine")
    for options in ([], ["--collection", "layout:nlp:default"]):
        check(desk.call("data", "there", *options), 2, "sample_submission.csv", "already")
        assert path.read_bytes() == b"mine"


def test_the_refusals_of_kaggle_are_told(desk: Desk) -> None:
    desk.world.faults = [Fault(DOWNLOAD, "403")]
    check(desk.call("data", "there"), 2, "not accepted")
    check(desk.call("data", "there", "--collection", "layout:gpu:random"), 2, "not a collection")


@pytest.mark.parametrize(("entries", "message"), [
    ([("good", b"1"), ("../escaped", b"2")], "the folder"),
    ([("a/../../escaped", b"2")], "the folder"), ([("/tmp/escaped", b"2")], "the folder"),
    ([("..\\escaped", b"2")], "the folder"), ([("C:\\escaped", b"2")], "the folder"),
    ([("C:/escaped", b"2")], "the folder"),
    ([(special("link", stat.S_IFLNK), b"/etc/passwd")], "special file"),
    ([(special("pipe", stat.S_IFIFO), b"")], "special file"),
    ([(special("folder/", stat.S_IFLNK), b"/etc")], "special file"),
    ([("bomb", bytes(LIMIT + 1))], r"0\.0.*allowed"),
    ([(f"bomb{n}", bytes(LIMIT // 4)) for n in range(5)], "would unpack"),
    ([("Same", b"1"), ("same", b"2")], "it twice"), ([("there", b"another")], "exists already"),
])  # fmt: skip
def test_an_archive_of_an_attack_is_refused(tmp_path: Path, entries: Entries, message: str) -> None:
    target = tmp_path / "data"
    target.mkdir()
    (target / "there").write_bytes(b"mine")
    archive = tmp_path / "archive.zip"
    archive.write_bytes(make_archive(entries))
    before = found(tmp_path)
    with pytest.raises(InputError, match=message) as caught:
        unpack_download(archive, target, LIMIT)
    assert not isinstance(caught.value, DamagedError)
    assert "archive.zip" in str(caught.value)
    assert found(tmp_path) == before


def test_a_bomb_that_lies_about_its_size_is_refused(tmp_path: Path) -> None:
    data = make_archive([("bomb", bytes(LIMIT + 1))])
    true, lie = (LIMIT + 1).to_bytes(4, "little"), (5).to_bytes(4, "little")
    assert data.count(true) == 2
    (tmp_path / "archive.zip").write_bytes(data.replace(true, lie))
    with pytest.raises(DamagedError, match="zip archive"):
        unpack_download(tmp_path / "archive.zip", tmp_path / "data", LIMIT)
    assert found(tmp_path / "data") == {}


def test_a_link_that_lies_in_the_way_is_not_followed(tmp_path: Path) -> None:
    target, outside = tmp_path / "data", tmp_path / "outside"
    target.mkdir()
    outside.mkdir()
    (target / "npz").symlink_to(outside)
    (target / "file").symlink_to(outside / "file")
    for name in ("npz/a", "file"):
        archive = tmp_path / "archive.zip"
        archive.write_bytes(make_archive([(name, b"1")]))
        with pytest.raises(InputError, match="archive.zip"):
            unpack_download(archive, target, LIMIT)
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("length", [0, 10, -30, -1])
def test_a_damaged_archive_is_refused(tmp_path: Path, length: int) -> None:
    whole = make_archive([("a/b", b"1" * 1000), ("c", bytes(range(256)))])
    (tmp_path / "archive.zip").write_bytes(whole[:length])
    with pytest.raises(DamagedError):
        unpack_download(tmp_path / "archive.zip", tmp_path / "data", LIMIT)


def test_a_name_that_ends_early_is_refused(tmp_path: Path) -> None:
    """zipfile ends it at the NUL: a file became an empty folder, and was missed by nobody."""
    path = tmp_path / "mine.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("npz/a.npz", b"1")
        archive.writestr("npz/X.npz", b"2")
    path.write_bytes(path.read_bytes().replace(b"npz/X.npz", b"npz/\0.npz"))
    with pytest.raises(InputError, match="neither"):
        unpack_download(path, tmp_path / "out", 1 << 20)


def test_what_is_there_already_is_not_written_again(tmp_path: Path) -> None:
    archive = tmp_path / "archive.zip"
    archive.write_bytes(make_archive([("a/b", b"1"), ("empty/", b""), ("c", b"2")]))
    files = unpack_download(archive, tmp_path / "data", LIMIT)
    assert found(tmp_path / "data") == {"a/b": b"1", "c": b"2"}
    first = files[0].stat().st_mtime_ns
    files[1].unlink()
    assert unpack_download(archive, tmp_path / "data", LIMIT) == files
    assert files[0].stat().st_mtime_ns == first
    assert files[1].read_bytes() == b"2"
