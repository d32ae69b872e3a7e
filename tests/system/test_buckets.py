"""Folders in a bucket: what stands there comes here, what changes here goes there, and no more."""

import io
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

from solution.system.buckets import Mirror, on_this_machine
from solution.system.errors import InputError
from solution.system.zips import add_files, pack_folder, unpack_folder

LocalFileSystem = pytest.importorskip("fsspec.implementations.local").LocalFileSystem


@pytest.fixture(autouse=True)
def mirrors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTSLOW_MIRRORS", str(tmp_path / "mirrors"))


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """The bucket: fsspec takes a folder for one."""
    for name in ("a.txt", "deep/b.txt"):
        (tmp_path / "there" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "there" / name).write_text(name)
    return tmp_path / "there"


@pytest.fixture
def mirror(there: Path) -> Mirror:
    """What came of it."""
    found = Mirror.of(f"file://{there}")
    found.pull()
    return found


def test_what_changes_here_goes_there_and_back(there: Path) -> None:
    with on_this_machine(f"file://{there}") as folder:
        assert (folder / "deep" / "b.txt").read_text() == "deep/b.txt"
        (folder / "new").mkdir()
        (folder / "new" / "c.txt").write_text("c")
        (folder / "a.txt").unlink()
        (folder / ".partial-1").write_text("half of a file")
    assert sorted(p.name for p in there.rglob("*.txt")) == ["b.txt", "c.txt"]
    assert not list(there.glob(".partial*"))
    (there / "deep" / "b.txt").write_text("changed by another machine")
    (there / "new" / "c.txt").unlink()
    with on_this_machine(f"file://{there}/") as again:
        assert again == folder  # whichever way it is written
        assert (again / "deep" / "b.txt").read_text() == "changed by another machine"
        assert not (again / "new" / "c.txt").exists()


def test_a_mirror_is_known_by_its_folder(mirror: Mirror, tmp_path: Path) -> None:
    assert Mirror.find(mirror.folder) == mirror and Mirror.find(tmp_path) is None
    with on_this_machine(tmp_path) as folder:
        assert folder == tmp_path


def test_what_is_known_is_not_fetched_again(mirror: Mirror) -> None:
    before = {path: path.stat().st_ino for path in mirror.folder.rglob("*.txt")}
    mirror.pull()
    assert {path: path.stat().st_ino for path in mirror.folder.rglob("*.txt")} == before
    (mirror.folder / "a.txt").write_text("damaged")  # a file here that is not what came
    mirror.pull()
    assert (mirror.folder / "a.txt").read_text() == "a.txt"


def test_what_was_never_sent_is_not_deleted(mirror: Mirror, there: Path) -> None:
    """As after a driver that died before it could send."""
    (mirror.folder / "model").write_text("trained")
    mirror.pull()
    assert (mirror.folder / "model").exists()
    mirror.push()
    assert (there / "model").read_text() == "trained"


def test_the_record_of_a_folder_comes_last(there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever finds it finds all the rest, even where fetching was cut off."""
    (there / "store.json").write_text("{}")
    mirror = Mirror.of(f"file://{there}")
    get_file = LocalFileSystem.get_file

    def break_off(system: LocalFileSystem, path: str, *more: Any, **named: Any) -> None:
        if path.endswith("deep/b.txt"):
            raise OSError("the line broke")
        get_file(system, path, *more, **named)

    monkeypatch.setattr(LocalFileSystem, "get_file", break_off)
    with pytest.raises(InputError, match="reached"):
        mirror.pull()
    assert not (mirror.folder / "store.json").exists()
    monkeypatch.setattr(LocalFileSystem, "get_file", get_file)
    mirror.pull()
    assert (mirror.folder / "store.json").exists()


def test_a_mirror_that_was_removed_empties_no_bucket(there: Path) -> None:
    with pytest.raises(InputError, match="was removed"), on_this_machine(f"file://{there}") as here:
        shutil.rmtree(here)
    assert (there / "a.txt").exists()


@pytest.mark.parametrize("sent_since", [False, True])
def test_an_emptied_bucket_empties_no_mirror(mirror: Mirror, there: Path, sent_since: bool) -> None:
    """As where a service came back empty, even if it got some of the models since."""
    (mirror.folder / "run.json").write_text("{}")
    mirror.push()
    shutil.rmtree(there)
    there.mkdir()
    if sent_since:
        (mirror.folder / "job").mkdir()
        (mirror.folder / "job" / "weights").write_text("trained")
        mirror.push("job")
    found = "no run" if sent_since else "none"
    words = f"the {3 + sent_since} files that stood there, found {found}"
    for must_exist in (False, True):
        with pytest.raises(InputError, match=f"expected {words}.*Nothing is deleted"):
            mirror.pull(must_exist=must_exist)
    assert (mirror.folder / "deep" / "b.txt").exists()
    (mirror.folder / "a.txt").write_text("changed")
    with pytest.raises(InputError, match=f"expected {words}"):
        mirror.push()
    mirror.folder.with_name(f"{mirror.folder.name}.mirror.json").unlink()  # as the message says
    mirror.pull()
    mirror.push()
    assert (there / "a.txt").read_text() == "changed" and (there / "run.json").exists()


def test_a_folder_that_was_emptied_there_goes_here_as_well(there: Path) -> None:
    (there / "deep" / "er").mkdir()
    (there / "deep" / "er" / "c.txt").write_text("c")
    mirror = Mirror.of(f"file://{there}")
    mirror.pull()
    (there / "deep" / "er" / "c.txt").unlink()
    mirror.pull()
    assert sorted(path.name for path in mirror.folder.rglob("*")) == ["a.txt", "b.txt", "deep"]
    (there / "deep" / "b.txt").unlink()
    mirror.pull()
    assert [path.name for path in mirror.folder.rglob("*")] == ["a.txt"]


def test_each_service_has_a_mirror_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    plain, local = Mirror.of("s3://bucket/run"), Mirror.of("file:///bucket/run")
    assert plain.folder.name == "run-03236a011055"  # as it always was
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://one:9000")
    one = Mirror.of("s3://bucket/run")
    assert Mirror.of("file:///bucket/run") == local
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://one:9000/")
    assert Mirror.of("s3://bucket/run/") == one
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://other:9000")
    assert len({plain.folder, one.folder, Mirror.of("s3://bucket/run").folder}) == 3


def test_what_is_only_read_must_be_there_and_is_not_sent_back(there: Path) -> None:
    with on_this_machine(f"file://{there}", sends=False) as folder:
        (folder / "a.txt").unlink()
    assert (there / "a.txt").exists()
    address = f"file://{there}/nowhere"
    with pytest.raises(InputError, match="nowhere"), on_this_machine(address, sends=False):
        pass
    assert not Mirror.of(address).folder.exists()
    with on_this_machine(address):  # a run begins empty
        pass


def test_one_process_works_on_a_run(there: Path) -> None:
    address, refused = f"file://{there}", pytest.raises(InputError, match="another process")
    with on_this_machine(address, alone=True), refused, on_this_machine(address, alone=True):
        pass


def test_what_failed_is_what_is_said(there: Path) -> None:
    with pytest.raises(ValueError, match="the work"), on_this_machine(f"file://{there}") as folder:
        (folder / "half").write_text("what was done until then is sent")
        raise ValueError("the work")
    assert (there / "half").exists()


def test_a_damaged_record_of_a_mirror_says_what_to_remove(mirror: Mirror) -> None:
    sidecar = mirror.folder.with_name(f"{mirror.folder.name}.mirror.json")
    sidecar.write_text(sidecar.read_text()[:-20])
    with pytest.raises(InputError, match="Remove"):
        mirror.pull()


def test_a_part_can_be_sent_alone_and_its_record_last(mirror: Mirror, there: Path) -> None:
    for name in ("job/job.json", "job/weights", "other/file"):
        (mirror.folder / name).parent.mkdir(exist_ok=True)
        (mirror.folder / name).write_text(name)
    mirror.push("job")
    assert sorted(p.name for p in (there / "job").iterdir()) == ["job.json", "weights"]
    assert not (there / "other").exists()
    written = [(there / "job" / name).stat().st_mtime_ns for name in ("weights", "job.json")]
    assert written == sorted(written)


@pytest.mark.parametrize(("address", "words"), [
    ("s3://key:secret@bucket/run", "the environment"),
    ("nowhere://bucket/run", "Buckets need an extra"),
])  # fmt: skip
def test_an_address_that_cannot_be_used(address: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught, on_this_machine(address):
        pass
    assert "secret" not in str(caught.value)


def test_a_bucket_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("s3fs").S3FileSystem.clear_instance_cache()
    for name, value in (("ENDPOINT_URL", "http://127.0.0.1:1"), ("MAX_ATTEMPTS", "1"),
                        ("ACCESS_KEY_ID", "test"), ("SECRET_ACCESS_KEY", "test")):  # fmt: skip
        monkeypatch.setenv(f"AWS_{name}", value)
    with pytest.raises(InputError, match="s3://bucket/run"), on_this_machine("s3://bucket/run"):
        pass


def test_a_folder_is_sent_as_it_is(there: Path, tmp_path: Path) -> None:
    parcel = pack_folder(there)
    assert parcel == pack_folder(there)
    unpack_folder(parcel, tmp_path / "copy")
    assert pack_folder(tmp_path / "copy") == parcel
    (tmp_path / "copy" / "mine").write_text("mine")
    add_files(parcel, tmp_path / "copy")
    assert (tmp_path / "copy" / "mine").exists()
    unpack_folder(parcel, tmp_path / "copy")
    assert not (tmp_path / "copy" / "mine").exists()


def test_a_name_that_leads_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("../../b.txt", "out of it")
    for write in (unpack_folder, add_files):
        with pytest.raises(InputError, match="out of"):
            write(content.getvalue(), tmp_path / "copy")
    assert not (tmp_path.parent / "b.txt").exists()
