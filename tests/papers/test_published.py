"""Experiments of published nets have the numbers that their documents give."""

from typing import Any

import pytest

from solution.experiments.base import find_experiment


def read(name: str, path: str) -> Any:
    """The value of a setting, such as nodes.trained."""
    value: Any = find_experiment(name).ranker
    for part in path.split("."):
        value = getattr(value, part)
    return value


RESIDUAL = {"training.loss": "list_mle", "training.optimizer": "adam", "training.max_configs": 20}
BATCHES = {
    f"{kind}_attention{suffix}_001": graphs
    for kind in ("layout_residual", "tile_residual")
    for suffix, graphs in (("", 10), ("_batch_50", 50), ("_batch_100", 100))
} | {"layout_residual_001": 10, "layout_residual_batch_50_001": 50, "tile_residual_001": 10}


@pytest.mark.parametrize(("name", "graphs"), BATCHES.items())
def test_the_residual_net_learns_as_its_report_says(name: str, graphs: int) -> None:
    assert {path: read(name, path) for path in RESIDUAL} == RESIDUAL
    assert read(name, "training.graphs_per_step") == graphs
    assert read(name, "training.epochs") == 6
    assert 2 <= read(name, "training.patience") <= 4
    assert read(name, "attention") == ("attention" in name)
    if name.startswith("layout"):
        assert (read(name, "nodes.trained"), read(name, "nodes.scored")) == (100, None)


@pytest.mark.parametrize(
    ("name", "path", "expected"),
    [
        ("layout_residual_attention_epoch_001", "training.epochs", 1),
        ("layout_residual_attention_batch_100_epoch_001", "training.epochs", 1),
        ("layout_residual_attention_batch_100_epoch_001", "training.graphs_per_step", 100),
        ("layout_violation_001", "nodes.trained", 1000),
        ("layout_violation_001", "nodes.scored", None),
        ("layout_violation_001", "training.configs_per_graph", 16),
        ("layout_violation_500_001", "nodes.trained", 500),
        ("layout_violation_10000_001", "nodes.trained", 10_000),
        ("layout_violation_10000_001", "training.configs_per_graph", 32),
        ("layout_violation_compressed_001", "nodes.trained", 5000),
        ("layout_violation_compressed_001", "compressed", True),
        ("layout_violation_without_ratio_001", "ratio", False),
        ("layout_violation_without_attention_001", "attention", None),
        ("layout_violation_last_001", "attention", "last"),
        ("layout_violation_importance_001", "importance", True),
        ("layout_violation_work_001", "nodes.draw", "work"),
        ("layout_tpugraphs_full_001", "segment", None),
        ("layout_tpugraphs_gcn_001", "block", "gcn"),
        ("layout_tpugraphs_opa_001", "training.chosen_by", "opa"),
        ("tile_tpugraphs_sage_late_blend_001", "training.regression", 0.02),
        ("tile_tpugraphs_attention_001", "heads", 16),
        ("layout_segments_001", "kept", 0.5),
        ("layout_segments_table_001", "kept", 1.0),
        ("layout_segments_anew_001", "table_megabytes", None),
        ("layout_segments_full_001", "max_nodes", None),
    ],
)
def test_a_setting_is_the_documents(name: str, path: str, expected: object) -> None:
    assert read(name, path) == expected
