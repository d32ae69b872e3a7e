"""Trees are read strictly, and LightGBM predicts the same from what is left of their text."""

from pathlib import Path

import lightgbm
import numpy as np
import pytest

from solution.models.trees.forest_text import Tree, parse_forest, read_forest
from solution.system.errors import InputError


def train(objective: str, leaves: int = 7, rows: int = 200) -> lightgbm.Booster:
    generator = np.random.default_rng(0)
    features = generator.normal(size=(rows, 5))
    labels = (features @ generator.normal(size=5) > 0).astype(float)
    parameters = {"objective": objective, "num_leaves": leaves, "verbosity": -1, "metric": "none"}
    group = [rows // 2, rows - rows // 2] if objective == "lambdarank" else None
    dataset = lightgbm.Dataset(features, labels, group=group)
    return lightgbm.train(parameters, dataset, num_boost_round=9)


def walk(tree: Tree, row: np.ndarray) -> float:
    """The value of a tree for one row, one comparison after the other."""
    node = 0 if len(tree.feature) else -1
    while node >= 0:
        goes_left = row[tree.feature[node]] <= tree.threshold[node]
        node = int((tree.left if goes_left else tree.right)[node])
    return float(tree.value[~node])


@pytest.mark.parametrize("objective", ["lambdarank", "regression", "binary"])
def test_the_same_predictions_and_contributions(objective: str, tmp_path: Path) -> None:
    booster = train(objective)
    booster.save_model(tmp_path / "model.txt")
    found = read_forest(tmp_path / "model.txt")
    again = lightgbm.Booster(model_str=found.text)
    rows = np.random.default_rng(1).normal(size=(50, 5))
    for options in ({}, {"raw_score": True}, {"pred_contrib": True}):
        expected = booster.predict(rows, **options)
        assert np.array_equal(again.predict(rows, **options), expected)
    sums = [sum(walk(tree, row) for tree in found.trees) for row in rows]
    np.testing.assert_allclose(sums, booster.predict(rows, raw_score=True), rtol=1e-12)
    assert found.columns == 5
    assert "[" not in found.text  # nothing of the parameters is left


def test_trees_without_a_split_are_read() -> None:
    text = train("regression", rows=10).model_to_string()  # too few rows to divide
    assert [len(tree.value) for tree in parse_forest(text).trees] == [1] * text.count("Tree=")


@pytest.mark.parametrize("content", [b"", b"tree\n", b"\xff\xfe", b"tree\nend of trees\n\n"])
def test_other_text_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.txt").write_bytes(content)
    with pytest.raises(InputError, match="expected trees as LightGBM writes them"):
        read_forest(tmp_path / "model.txt")
    with pytest.raises(InputError, match="there is no such file"):
        read_forest(tmp_path / "none.txt")


def test_any_byte_may_be_another(tmp_path: Path) -> None:
    """A changed character is refused, or LightGBM bears it."""
    text = train("regression", leaves=4).model_to_string()
    generator = np.random.default_rng(2)
    for _ in range(300):
        place = int(generator.integers(text.index("end of trees")))
        changed = text[:place] + chr(generator.integers(32, 127)) + text[place + 1 :]
        try:
            found = parse_forest(changed)
        except ValueError:
            continue
        lightgbm.Booster(model_str=found.text).predict(np.zeros((1, found.columns)))
