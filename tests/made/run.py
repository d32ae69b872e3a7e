"""Write a run folder with all that a report shows, without training."""

from pathlib import Path

import numpy as np
import polars as pl

from solution.domain import predictions
from solution.domain.collection import NAMES
from solution.runs.folder import Run
from solution.runs.job import JobRecord, write_job
from solution.runs.record import open_run

GRAPHS, CONFIGS = 6, 30
# By experiment: how noisy its scores are in multiples of the runtimes' spread, and its seeds.
EXPERIMENTS: dict[str, tuple[float | None, list[int]]] = {
    "nothing_001": (None, [0]),
    "net_001": (0.5, [0, 1]),
    "trees_001": (0.8, [0]),
}
MEASURES = {
    "loss": [1 - step / 40 for step in range(20)],
    "opa": [0.5 + step / 100 for step in range(20)],
    "tau": [step / 50 for step in range(20)],
    "validation_loss": [1.1 - step / 50 for step in range(20)],
}
RECIPE = 'fallback = "nothing_001"\n[members]\nnet_001 = 3\ntrees_001 = 1\n'
LEDGER = """key,when,recipe,oof_mean,public,private,notes
a,2023-11-01,plain,0.60,0.61,0.58,first
b,2023-11-02,"net, alone",0.62,0.64,,
c,2023-11-03,mine,0.65,0.66,0.63,
d,2023-11-04,mine,0.66,0.70,0.69,
e,2023-11-05,broken,,,,no score
"""


def make_run(
    folder: Path,
    *,
    graphs: int = GRAPHS,
    collections: tuple[str, ...] = NAMES,
    more: int = 0,
    noise: bool = True,
    curves: bool = True,
) -> Run:
    """Write a run of three experiments, and `more`, on graphs of the collections."""
    generator = np.random.default_rng(0)
    experiments = EXPERIMENTS | {f"member_{number:03}": (1.0, [0]) for number in range(more)}
    settings = {"experiments": {name: {"seeds": s} for name, (_, s) in experiments.items()}}
    with open_run(folder, {**settings, "scheme": "graph", "folds": 2}) as run:
        keys = [(c, f"graph_{g}<&>", config) for c in collections for g in range(graphs)
                for config in range(CONFIGS)]  # fmt: skip
        runtimes = np.exp(generator.normal(0, 0.4, len(keys)))
        schema = pl.Schema(dict(list(predictions.SCHEMA.items())[:3]))
        frame = pl.DataFrame(keys, schema=schema, orient="row")
        labels = frame.with_columns(runtime=runtimes)
        predictions.write(labels, run.labels)
        predictions.write(_graphs(labels, noise=noise), run.graphs)
        for name, (error, seeds) in experiments.items():
            for part in predictions.PARTS:
                scores = [_predict(labels, error, seed, generator) for seed in seeds]
                predictions.write(pl.concat(scores), run.predictions(name, part))
            for collection in collections:
                _write_jobs(run, name, collection, seeds, generator, curves=curves)
    return run


def _graphs(labels: pl.DataFrame, *, noise: bool) -> pl.DataFrame:
    found = labels.group_by("collection", "graph").agg(configs=pl.len()).sort(pl.all())
    found = found.with_columns(group="graph", labelled=pl.lit(value=True))
    measured = pl.when(pl.col("collection").str.contains("xla")).then(0.1)
    return found.with_columns(noise=measured if noise else pl.lit(None, pl.Float64()))


def _predict(
    labels: pl.DataFrame, error: float | None, seed: int, generator: np.random.Generator
) -> pl.DataFrame:
    scores = np.zeros(len(labels))
    if error is not None:
        scores = np.log(labels["runtime"].to_numpy()) + generator.normal(0, error, len(labels))
    columns = {"fold": pl.lit(0), "seed": pl.lit(seed), "score": pl.Series(scores)}
    return labels.drop("runtime").with_columns(**columns).cast(dict(predictions.SCHEMA))


def _write_jobs(
    run: Run,
    name: str,
    collection: str,
    seeds: list[int],
    generator: np.random.Generator,
    *,
    curves: bool,
) -> None:
    for seed in seeds:
        rising = 0.6 - 0.4 * np.exp(-np.arange(20) / 5) + generator.normal(0, 0.01, 20)
        curve = [(step + 1, round(score, 5)) for step, score in enumerate(rising.tolist())]
        folder = run.job(name, [collection], 0, seed)
        folder.mkdir(parents=True)
        record = JobRecord(
            experiment=name,
            source="",
            collections=(collection,),
            learned_from=(collection,),
            fold=0,
            seed=seed,
            versions={},
            seconds=1.5,
            peak_megabytes=300.0,
            fitted_on=[],
            validated_on=[],
            curve=curve if curves and name != "nothing_001" else [],
            files={},
            measures=MEASURES if curves and name == "net_001" else {},
            volatility=0.0123 if name == "net_001" else None,
        )
        write_job(record, folder)
