"""The programs that were collected: sound, and none that a test graph could be known by."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from solution.collecting.families import write_programs
from solution.collecting.sample import COUNTS, Sample, draw_drafts, find_architectures
from solution.data.folders import find_files
from solution.data.npz import read_graph
from solution.data.scan import scan
from solution.programs.child import Child, Limits
from solution.programs.program import read_programs
from solution.system.errors import InputError
from solution.system.files import holding, write_sealed
from tests.conftest import REPOSITORY, SHARED

COLLECTED = REPOSITORY / "solution" / "data" / "collected"


def read_layouts() -> dict[tuple[str, str], list[str]]:
    """Architectures, by collection and split."""
    found: dict[tuple[str, str], list[str]] = {}
    for file in find_files(COLLECTED):
        if file.collection.kind == "layout":
            architecture = read_graph(file.path, file.collection).architecture
            found.setdefault((file.collection.name, file.split), []).append(architecture)
    return found


def test_every_file_is_sound_and_no_architecture_stands_twice() -> None:
    _, defects = scan(find_files(COLLECTED))
    assert not defects
    for name in {name for name, _ in read_layouts()}:
        own = [a for (other, _), found in read_layouts().items() if other == name for a in found]
        assert len(set(own)) == len(own) > 10


def test_no_test_graph_is_among_them() -> None:
    if not (SHARED / "cpugraphs").is_dir():
        pytest.skip("the measured CPU graphs are not here")
    tested = find_architectures(SHARED / "cpugraphs")
    assert len(tested) > 10
    assert not tested & {a for found in read_layouts().values() for a in found}


def test_what_was_collected_is_not_collected_again() -> None:
    """Each note leads to its graph; the drafts are drawn in the same order everywhere."""
    sample = Sample(COLLECTED, set(), workers=None, say=print)
    for name in COUNTS:
        notes = COLLECTED / "drafts" / name.replace(":", "-")
        known = {path.stem for path in notes.glob("*.json")}
        assert known <= {draft.name for draft in draw_drafts(name)}
        following = sample.find_next(name)
        assert (following is None) == (sample.count(name) == COUNTS[name])
        assert following is None or following.name not in known
        assert sample.count(name) == len(graphs_of(name))


def test_what_stands_behind_a_gap_is_not_taken_twice(tmp_path: Path) -> None:
    """A draft that was tried counts, wherever it stands among those that were not."""
    first, second, third, *_ = draw_drafts("layout:xla:random")
    notes = tmp_path / "drafts" / "layout-xla-random"
    for draft, architecture in ((first, "one"), (third, "other")):
        npz = f"npz/{draft.name}.npz"
        write_sealed({"architecture": architecture, "npz": npz}, notes / f"{draft.name}.json")
    sample = Sample(tmp_path, set(), workers=None, say=print)
    assert sample.find_next("layout:xla:random") == second
    assert sample.count("layout:xla:random") == 2
    assert sample._taken["layout:xla:random"] == {"one", "other"}


def test_two_workers_are_at_different_collections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And where others are at all that is left, there is nothing to do."""
    drawn: list[str] = []
    monkeypatch.setattr(Sample, "collect", lambda _, draft: drawn.append(draft.collection))
    sample = Sample(tmp_path, set(), workers=None, say=print)
    assert sample.collect_next()
    with ExitStack() as others:
        for count in range(1, len(COUNTS)):
            taken = tmp_path / "drafts" / drawn[-1].replace(":", "-")
            assert others.enter_context(holding(taken))
            assert sample.collect_next()
            assert len(set(drawn)) == count + 1
        assert others.enter_context(holding(tmp_path / "drafts" / drawn[-1].replace(":", "-")))
        assert not sample.collect_next()
    assert sample.collect_next()


def test_programs_of_a_family_are_drawn_alike_and_can_be_read(tmp_path: Path) -> None:
    """By a child that compiles; other numbers are other programs."""
    paths = write_programs(tmp_path / "one", "mlp", 3)
    again = write_programs(tmp_path / "other", "mlp", 2)
    assert [path.read_text() for path in again] == [path.read_text() for path in paths[:2]]
    with Child(Limits()) as child:
        programs = [program for path in paths[:2] for program in read_programs(path, child)]
    assert [program.name for program in programs] == ["mlp_000", "mlp_001"]
    assert len({program.digest for program in programs}) == 2
    with pytest.raises(InputError, match="'lstm': expected one of the families convnet, mlp"):
        write_programs(tmp_path, "lstm", 1)


def graphs_of(name: str) -> list[Path]:
    return [file.path for file in find_files(COLLECTED) if file.collection.name == name]
