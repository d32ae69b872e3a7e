"""The map in docs/ is of the files that are there."""

from tests.map import LISTED_BY_NAME, MAP, REPOSITORY, ROOMS, write


def test_the_map_is_up_to_date() -> None:
    found = MAP.read_text(encoding="utf-8")
    assert found == write(), "write it anew with `python -m tests.map`"


def test_every_room_is_on_the_map() -> None:
    for package in ("solution", "ensembles", "submissions"):
        for init in (REPOSITORY / package).rglob("__init__.py"):
            room = init.parent.relative_to(REPOSITORY).as_posix()
            files = [path for path in init.parent.glob("*.py") if path != init]
            known = room in ROOMS or room.startswith(LISTED_BY_NAME)
            assert known or not files, f"{room}: say what the room is in tests/map.py"


def test_the_hall_is_small() -> None:
    entries = [path for path in (REPOSITORY / "solution").iterdir() if path.name[0] not in "._"]
    assert len(entries) <= 20
