"""Sessions: a run that several train ends as one that a single one does.

Nothing else is put together.
"""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from ensembles import DEFAULT_RECIPE
from ensembles.recipe import find_recipe
from solution import load_bundle
from solution.data.folders import SAMPLE, find_files
from solution.domain import predictions
from solution.domain.predictions import PARTS
from solution.experiments.base import Experiment, find_experiment
from solution.runs.folder import Run
from solution.runs.record import open_run
from solution.sessions.earlier_runs import adopt, choose, describe_missing, join_runs
from solution.sessions.session import Session, add_to_sample
from solution.sessions.train_session import FOLDS, REFIT, Packing, Share, train_session
from solution.store.store import Store
from solution.system.errors import InputError
from solution.system.files import write_sealed
from solution.system.names import match
from solution.training.jobs import EVERYTHING, Choice, find_backlog, list_missing
from solution.training.opening import describe_run, save_split
from solution.training.out_of_fold import run_experiments
from solution.training.plan import Plan, make_plan
from tests.made.graphs import make_layout_graph, make_tile_graph, write_graph

DEFAULT = find_recipe(DEFAULT_RECIPE)
NOTHING, TILES = "nothing_001", "tile_lightgbm_001"


@pytest.fixture(scope="module")
def plan(sample_store: Store) -> Plan:
    return make_plan(sample_store, "architecture", 3, limit=True)


def train(
    folder: Path,
    experiments: Sequence[Experiment],
    plan: Plan,
    chosen: Choice = EVERYTHING,
    sources: Sequence[Run] = (),
) -> Run:
    """One session: it takes over what there is, and trains what was chosen."""
    with open_run(folder, describe_run(experiments, plan, "architecture", 3)) as run:
        save_split(plan, run)
        adopt(run, sources)
        run_experiments(find_backlog(experiments, plan, run, chosen), plan, run)
    return run


@pytest.fixture(scope="module")
def alone(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """What one session trains, not to be changed."""
    return train(tmp_path_factory.mktemp("alone"), [find_experiment(TILES).quick()], plan)


def read_all(run: Run, experiment: str) -> list[bytes]:
    return [run.predictions(experiment, part).read_bytes() for part in PARTS]


def test_patterns() -> None:
    names = ("layout_gnn_001", "layout_lightgbm_001", "tile_gnn_001")
    assert match(names, "layout_*,!*lightgbm*") == ["layout_gnn_001"]
    assert match(names, "*,!layout_*,*lightgbm*") == ["layout_lightgbm_001", "tile_gnn_001"]
    with pytest.raises(InputError, match="chooses nothing"):
        match(names, "!layout_*")


def test_what_cannot_be_chosen_is_said(plan: Plan) -> None:
    with pytest.raises(InputError, match="there are 0, 1, 2"):
        choose(plan, folds="1,7")
    with pytest.raises(InputError, match="expected numbers"):
        choose(plan, folds="one")
    with pytest.raises(InputError, match="There are layout:xla:default"):
        choose(plan, "layout:tpu")


def test_sessions_that_share_the_folds_make_the_run_of_one(
    plan: Plan, alone: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fold 0 in one session, the others in another that takes the first one over, and packs."""
    experiments = [find_experiment(TILES).quick()]
    first = train(tmp_path / "first", experiments, plan, choose(plan, folds="0"))
    missing = list_missing(experiments, plan, first)
    unfinished = missing[0].folder(first).with_name("fold-1-seed-0.checkpoints")
    unfinished.mkdir()
    (unfinished / "state").write_text("of an unfinished fit")
    assert [job.fold for job in missing] == [1, 2]
    assert describe_missing(missing).startswith("2 models are not trained yet: tile_lightgbm_001")
    with open_run(tmp_path / "new", describe_run(experiments, plan, "architecture", 3)) as new:
        assert adopt(new, [first]) == 1
        assert (new.folder / unfinished.relative_to(first.folder) / "state").is_file()
    assert Packing(FOLDS, DEFAULT, experiments, plan, first, ()).pack(tmp_path) is None
    assert "2 models" in capsys.readouterr().out
    rest = train(tmp_path / "rest", experiments, plan, choose(plan, folds="1,2"), [first])
    assert list_missing(experiments, plan, rest) == []
    bundle = Packing(FOLDS, DEFAULT, experiments, plan, rest, ()).pack(tmp_path)
    assert bundle is not None
    assert [member.fold for member in load_bundle(bundle).record.members] == [0, 1, 2]
    assert read_all(rest, TILES) == read_all(alone, TILES)


def test_joined_runs_are_the_run_of_one(plan: Plan, alone: Run, tmp_path: Path) -> None:
    """Different experiments, and different collections of one, each in separate sessions."""
    nothing, tiles = find_experiment(NOTHING), find_experiment(TILES).quick()
    whole = train(tmp_path / "whole", [nothing, tiles], plan)
    refits = Packing(REFIT, DEFAULT, [nothing, tiles], plan, whole, ("tile:xla",))
    assert [job.describe() for job in refits.list_missing()] == [
        "nothing_001 tile:xla all graphs", "tile_lightgbm_001 tile:xla all graphs"
    ]  # fmt: skip
    sources = [
        alone,
        train(tmp_path / "b", [nothing], plan, choose(plan, "layout:*")),
        train(tmp_path / "c", [nothing], plan, choose(plan, "tile:*")),
    ]
    with join_runs(sources, tmp_path / "joined") as run:
        assert run.experiments() == [TILES, NOTHING]
        for name in (NOTHING, TILES):
            assert read_all(run, name) == read_all(whole, name)
    for kind, experiment in (("", tiles), (FOLDS, nothing)):  # nothing of the recipe was trained
        one = train(tmp_path / "nothing", [experiment], plan) if experiment is nothing else whole
        assert Packing(kind, DEFAULT, [experiment], plan, one, ()).pack(tmp_path) is None
    with pytest.raises(InputError, match="trained.*nothing_001"):
        join_runs(sources[:2], tmp_path / "half").__enter__()
    with pytest.raises(InputError, match="inputs have no run"):
        join_runs([], tmp_path / "none").__enter__()


def test_what_was_made_differently_is_left_aside(sample_store: Store, tmp_path: Path) -> None:
    """Other folds, other code: not adopted, and joining says what differs."""
    experiments = [find_experiment(NOTHING)]
    plans = [make_plan(sample_store, "architecture", 3, limit=limit) for limit in (True, False)]
    one = train(tmp_path / "one", experiments, plans[0])
    other = train(tmp_path / "other", experiments, plans[1], choose(plans[1], "layout:xla:random"))
    with open_run(tmp_path / "new", describe_run(experiments, plans[0], "architecture", 3)) as run:
        assert adopt(run, [other]) == 0
        assert adopt(run, [other, one]) == len(list_missing(experiments, plans[0], Run(tmp_path)))
        assert adopt(run, [one]) == 0
    with pytest.raises(InputError, match="differently.*graphs"):
        join_runs([one, other], tmp_path / "joined").__enter__()


def test_a_name_in_somebody_elses_record_is_never_executed(plan: Plan, tmp_path: Path) -> None:
    source = train(tmp_path / "theirs", [find_experiment(NOTHING)], plan)
    witness = tmp_path / "executed"
    evil = source.folder / "evil.py"
    evil.write_text(f"from pathlib import Path\nPath({str(witness)!r}).touch()\n")
    record = source.record()
    for name in (str(evil), "../theirs/evil.py", "os"):
        record["settings"]["experiments"] = {name: {}}
        write_sealed(record, source.folder / "run.json")
        with pytest.raises(InputError, match="run.json: .*expected a name|is not an experiment"):
            join_runs([source], tmp_path / "joined").__enter__()
    assert not witness.exists()
    assert not (tmp_path / "joined").exists()


@pytest.mark.parametrize("where", ["file", "job", "group", "graphs"])
def test_links_in_another_run_are_not_followed(where: str, alone: Run, tmp_path: Path) -> None:
    source = Run.existing(Path(shutil.copytree(alone.folder, tmp_path / "theirs")))
    secret = tmp_path / "secret"
    job = source.jobs(TILES)[0]
    replaced = {"file": job / "model" / "model.txt", "job": job, "group": job.parent,
                "graphs": source.graphs}[where]  # fmt: skip
    replaced.rename(secret)
    replaced.symlink_to(secret)
    with pytest.raises(InputError, match="link|not there as it was written|not trained yet"):
        join_runs([source], tmp_path / "joined").__enter__()
    copied = (tmp_path / "joined" / job.relative_to(source.folder)).exists()
    assert not copied


def test_what_was_learned_from_before_does_not_stay(tmp_path: Path) -> None:
    """One that an earlier session added may be kept aside in this one."""
    root, folder = tmp_path / "measured", tmp_path / "data"
    mine = [
        write_graph(make_layout_graph(number, name=f"mine_{number}"), root) for number in (0, 1)
    ]
    for count in (2, 1):
        add_to_sample(mine[:count], root, folder)
        found, ours = ({file.name for file in find_files(data)} for data in (folder, SAMPLE))
        assert found == ours | {path.stem for path in mine[:count]}


def test_other_data_of_a_notebook_is_learned_from_afresh(tmp_path: Path) -> None:
    session = Session(
        "mine", "", tmp_path, tmp_path / "out", tmp_path / "scratch", on_kaggle=False,
        begun=time.monotonic(),
    )  # fmt: skip
    session.output.mkdir()
    share = Share("tile_lightgbm*", "tile:*")
    for last, replace in ((4, False), (3, False), (3, True)):
        data = tmp_path / f"data{last}"
        for number in range(last):
            write_graph(make_tile_graph(number, name=f"kernel{number}"), data)
        if last == 3 and not replace:
            with pytest.raises(InputError):
                train_session(session, share, data=data, num_folds=2, limit=True)
            continue
        trained = train_session(session, share, data=data, num_folds=2, limit=True, replace=replace)
        assert len(predictions.read(trained.run.graphs)) == last
