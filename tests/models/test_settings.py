"""A wrong setting is refused where it is written, before data is prepared or a worker begins."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from solution.experiments.base import find_experiment
from solution.models.layout.layout_gnn import LayoutGnnSettings
from solution.models.linear import LassoSettings, RidgeSettings
from solution.models.nets.training_settings import TrainingSettings
from solution.models.tile.tile_gnn import TileGnnSettings
from solution.papers.lightgbm_model import StudyLassoSettings
from solution.papers.nodes import NodeSettings
from solution.papers.segment_training import SegmentSettings
from solution.papers.tpugraphs import TpuGraphsSettings
from solution.papers.tpugraphs_tile import TpuGraphsTileSettings
from solution.papers.violation import ViolationSettings
from solution.system.errors import InputError

WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: TrainingSettings(loss="listmle"),
     "loss is 'listmle', expected one of pairwise_hinge, .*, runtime_squared_error. "
     "Did you mean list_mle"),
    (lambda: TrainingSettings(loss="mle 7"), "loss is 'mle 7', expected one of [^?]*$"),
    (lambda: TrainingSettings(loss=None), "loss is None, expected one of"),  # type: ignore[arg-type]
    (lambda: TrainingSettings(loss=["list_mle"]),  # type: ignore[arg-type]
     "loss is .'list_mle'., expected one of"),
    (lambda: TrainingSettings(optimizer="adamax"),
     "optimizer is 'adamax', expected one of adamw, adam. "),
    (lambda: TrainingSettings(chosen_by="loss"), "chosen_by is 'loss', expected one of score, opa"),
    (lambda: NodeSettings(draw="cost"), "draw is 'cost', expected one of evenly, work"),
    (lambda: NodeSettings(subsets=0), "subsets is 0, expected a number from 1 to 1,000"),
    (lambda: ViolationSettings(attention="middle"),
     "attention is 'middle', expected one of first, last, None"),
    (lambda: ViolationSettings(heads=0), "heads is 0, expected a number from 1 to 64"),
    (lambda: TpuGraphsSettings(block="both_ways"),
     "block is 'both_ways', expected one of sage, gcn"),
    (lambda: LayoutGnnSettings(pruning="neighborhood"),
     "pruning is 'neighborhood', expected one of neighbourhood, virtual, nothing. "
     "Did you mean neighbourhood"),
    (lambda: LayoutGnnSettings(rounds=()), r"rounds is \(\), expected a tuple of one even width"),
    (lambda: LayoutGnnSettings(rounds=(8, 5)), r"rounds is \(8, 5\), expected .* even"),
    (lambda: LayoutGnnSettings(rounds=(8, 0)), r"rounds is \(8, 0\), expected .* even"),
    (lambda: LayoutGnnSettings(rounds=64), "rounds is 64, expected a tuple"),  # type: ignore[arg-type]
    (lambda: TileGnnSettings(block="sagee"),
     "block is 'sagee', expected one of both_ways, sage, gcn. Did you mean sage"),
    (lambda: TileGnnSettings(block="GCN "), "block is 'GCN ', expected one of"),
    (lambda: NodeSettings(pruning="none"), "pruning is 'none', expected one of"),
    (lambda: TpuGraphsTileSettings(block="mlp"),
     "block is 'mlp', expected one of both_ways, sage, gcn, None"),
    (lambda: TpuGraphsTileSettings(join="sideways"),
     "join is 'sideways', expected one of late, early"),
    (lambda: SegmentSettings(partition="random"),
     "partition is 'random', expected one of metis, topological"),
    (lambda: RidgeSettings(grid=()), r"grid is \(\), expected a tuple of one number or more"),
    (lambda: LassoSettings(grid=(0.1, -1.0)), "grid is .*, expected .* none below 0"),
    (lambda: StudyLassoSettings(grid=(float("nan"),)), "grid is .*, expected .* none below 0"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), WRONG)
def test_what_no_setting_can_be_is_refused_when_it_is_written(
    make: Callable[[], object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        make()


EXPERIMENT = """
from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.models.layout.layout_gnn import LayoutGnnSettings

EXPERIMENT = Experiment("misspelt", LAYOUT, LayoutGnnSettings(pruning="neighborhood"))
"""


def test_a_wrong_word_in_an_experiment_names_its_file(tmp_path: Path) -> None:
    file = tmp_path / "misspelt.py"
    file.write_text(EXPERIMENT, encoding="utf-8")
    with pytest.raises(InputError, match="misspelt.py.*Did you mean neighbourhood"):
        find_experiment(str(file))


def test_saved_settings_are_checked_as_well() -> None:
    """With the same message: pydantic hands errors on that are no ValueError."""
    known = TypeAdapter(LayoutGnnSettings)
    assert known.validate_python({"rounds": [8, 4]}).rounds == (8, 4)
    with pytest.raises(InputError, match="pruning is 'all', expected one of"):
        known.validate_python({"pruning": "all"})
