"""A file and its seal: damage is named, and no kill leads into a dead end."""

from pathlib import Path

import pytest

from solution.system import sealing
from solution.system.errors import InputError
from solution.system.sealing import (
    check_any_seal,
    check_files,
    check_seal,
    find_seal,
    list_checksums,
    replace_sealed,
)


class KillError(BaseException):
    """Stands for a kill: nothing after it is done."""


def write(path: Path, content: bytes) -> None:
    with replace_sealed(path) as temporary:
        temporary.write_bytes(content)


def test_what_was_written_has_a_seal_that_does_not_hold_how_often(tmp_path: Path) -> None:
    for name, contents in (("a", [b"one"]), ("b", [b"zero", b"", b"one"])):
        for content in contents:
            write(tmp_path / name, content)
            check_seal(tmp_path / name)
    assert find_seal(tmp_path / "a").read_bytes() == find_seal(tmp_path / "b").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"a", "a.seal", "b", "b.seal"}


@pytest.mark.parametrize("damage", [b"onf", b"", b"one ", None])
def test_damage_is_named(damage: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "a"
    write(path, b"one")
    path.unlink() if damage is None else path.write_bytes(damage)
    for check in (check_seal, check_any_seal):
        with pytest.raises(InputError, match="a: is not"):
            check(path)
    write(path, b"two")  # and made again
    check_seal(path)


def test_a_file_of_another_program_has_no_seal(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one")
    check_any_seal(tmp_path / "a")
    with pytest.raises(InputError, match=r"a\.seal"):
        check_seal(tmp_path / "a")


@pytest.mark.parametrize("before", [None, b"one"])
@pytest.mark.parametrize("step", range(4))
def test_a_kill_between_file_and_seal_leaves_what_can_be_read(
    before: bytes | None, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is written last, the one or the other, nothing is refused."""
    path = tmp_path / "a"
    if before is not None:
        write(path, before)
    steps = iter(range(step))
    real = Path.replace

    def replace(self: Path, target: Path) -> Path:
        if next(steps, None) is None:
            raise KillError
        return real(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    try:
        write(path, b"two")
    except KillError:
        assert step < 3
    monkeypatch.undo()
    check_any_seal(path)
    found = path.read_bytes() if path.exists() else None
    assert found == (b"two" if step >= 2 else before)
    write(path, b"three")
    check_seal(path)


def test_damage_is_not_taken_over_by_the_next_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    write(path, b"one")
    path.write_bytes(b"onf")
    known = []
    real = sealing.write_sealed
    monkeypatch.setattr(
        sealing, "write_sealed", lambda value, to: (known.append(value), real(value, to))
    )
    write(path, b"two")
    assert [len(value[sealing.SUMS]) for value in known] == [1]


def test_a_file_of_another_size_is_not_read(tmp_path: Path) -> None:
    """A terabyte that takes no room would take minutes."""
    write(tmp_path / "a", b"one")
    (tmp_path / "b").write_bytes(b"two")
    listed = list_checksums(tmp_path)
    for name in ("a", "b"):
        with (tmp_path / name).open("ab") as file:
            file.truncate(1 << 40)
    with pytest.raises(InputError, match="a: is not"):
        check_seal(tmp_path / "a")
    with pytest.raises(InputError, match="not there"):
        check_files(tmp_path, listed, tmp_path / "record.json")
