"""Merge a run's predictions into rankings and scores, in one pass over batches of graphs.

The merging methods of ensembles.votes are applied to frames that hold many graphs. A recipe says
which experiments are merged: its members. A single experiment is scored as a recipe with one
member, whose folds and seeds are averaged first.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from ensembles.recipe import Recipe, check_members, check_place, check_recipe, make_recipe
from ensembles.votes import Method, combine, scale
from solution.domain import predictions
from solution.domain.graph import warn_of_estimates
from solution.domain.metrics import score_predictions
from solution.domain.predictions import KEYS, RANKING_SCHEMA, REQUEST_KEYS
from solution.runs.folder import EXPERIMENTS, QUICK_LOOK, Run
from solution.system.errors import InputError
from solution.system.files import checksum, remove_leftovers
from solution.system.parquet import GRAPH, read_by_graphs, write_batches
from solution.system.wording import count


def normalise(predictions: pl.DataFrame, method: Method = "mean_rank") -> pl.DataFrame:
    """Return an experiment's predictions on the method's scale, averaged over folds and seeds. The
    scales are defined in ensembles.votes. The result is a frame of RANKING_SCHEMA (collection,
    graph, config, score), sorted by collection, graph and config."""
    ordered = predictions.sort(KEYS)
    numbered = ordered.select(
        pl.struct(REQUEST_KEYS).rle_id().alias("config"),
        pl.struct(pl.struct(GRAPH).rle_id(), "fold", "seed").rank("dense").alias("model"),
        pl.col("score").cast(pl.Float64),
    )
    config, model, score = (numbered[name].to_numpy() for name in numbered.columns)
    # mean of configuration c = sum over models m (by fold, then seed) of scaled[c, m] / models
    scaled = np.empty(len(score))
    by_model = np.argsort(model, kind="stable")
    for rows in np.split(by_model, np.flatnonzero(np.diff(model[by_model])) + 1):
        if len(rows):
            scaled[rows] = scale(score[rows], method)
    means = np.bincount(config, weights=scaled) / np.bincount(config)
    keys = ordered.select(REQUEST_KEYS).unique(maintain_order=True)
    return keys.with_columns(score=pl.Series(means)).cast(RANKING_SCHEMA)


def merge(
    members: Mapping[str, pl.DataFrame],
    weights: Mapping[str, float],
    method: Method = "mean_rank",
) -> pl.DataFrame:
    """Merge the members' scores into one frame of RANKING_SCHEMA, sorted by its keys.

    Args:
        members: by name, the result of `normalise`; all with the same configurations.
        weights: by name, positive; only their ratios matter.

    Raises InputError if a member lacks predictions that others have.
    """
    check_aligned(members)
    names = sorted(members)
    votes = np.stack([members[name]["score"].cast(pl.Float64).to_numpy() for name in names])
    merged = combine(votes, np.array([float(weights[name]) for name in names]), method)
    return members[names[0]].with_columns(score=pl.Series(merged)).cast(RANKING_SCHEMA)


def check_aligned(members: Mapping[str, pl.DataFrame]) -> None:
    """Raise InputError naming a member that lacks predictions of other members. Members are frames
    of RANKING_SCHEMA by name, sorted by their keys."""
    keys = {name: frame.select(REQUEST_KEYS) for name, frame in members.items()}
    first = next(iter(keys.values()))
    if all(other.equals(first) for other in keys.values()):
        return
    wanted = pl.concat(keys.values()).unique()
    for name, present in sorted(keys.items()):
        missing = wanted.join(present, on=REQUEST_KEYS, how="anti").sort(REQUEST_KEYS)
        if len(missing):
            lacks = missing.row(0, named=True)
            raise InputError(
                f"{name} has no prediction for {lacks['collection']}:{lacks['graph']}, "
                f"configuration {lacks['config']}, and {len(missing) - 1} more that other members "
                "have. Make its predictions again, take it out of the recipe, or add "
                'allow_missing = ["graphs"] to the recipe.'
            )


def split_by_presence(members: Mapping[str, pl.DataFrame]) -> list[dict[str, pl.DataFrame]]:
    """Divide the graphs by the set of members that rank all of their configurations.

    Ranks in a part of a graph are not comparable with ranks in the whole, so a member counts in a
    graph only if it has every configuration that any member has. Members are frames of
    RANKING_SCHEMA by name, sorted by their keys.

    Returns:
        A dictionary for each such set of members: by member, its predictions of the graphs that
        exactly this set ranks completely. Graphs that no member ranks completely are left out.
    """
    wanted = pl.concat([frame.select(REQUEST_KEYS) for frame in members.values()]).unique()
    sizes = wanted.group_by(GRAPH).agg(pl.len().alias("configs"))
    counts = [
        frame.group_by(GRAPH).agg(pl.len().alias("configs")).join(sizes, on=[*GRAPH, "configs"])
        .select(*GRAPH, pl.lit(name).alias("member"))
        for name, frame in sorted(members.items())
    ]  # fmt: skip
    present = pl.concat(counts).group_by(GRAPH).agg(pl.col("member").sort())
    return [
        {
            name: members[name].join(graphs, on=GRAPH, how="semi").sort(REQUEST_KEYS)
            for name in names
        }
        for (names,), graphs in present.sort(GRAPH).group_by("member", maintain_order=True)
    ]


def check_mergeable(run: Run, recipe: Recipe) -> None:
    """Raise InputError unless the run can be merged by the recipe. The recipe must fit the run's
    experiments, their predictions must exist, and the recipe's name must be neither an experiment
    nor a file of the run."""
    experiments = run.experiments()
    check_recipe(recipe, experiments)
    check_place(recipe, experiments)
    if (run.folder / recipe.name).is_file():
        raise InputError(
            f"recipe {recipe.name} has the name of a file of the run {run.folder}. Give the "
            "recipe's file another name."
        )
    check_finished(run, recipe)


def check_finished(run: Run, recipe: Recipe) -> None:
    """Raise InputError if predictions of the recipe's experiments are still to be made. Experiments
    that cannot be trained on the run's labels are not waited for, but at least one experiment of
    the recipe must have predictions."""
    missing, wanted = find_missing(run, recipe), _list_wanted(recipe)
    if missing or not _list_predicted(run, wanted):
        raise InputError(
            f"{run.folder}: is not finished: {count(run.count_models(), 'model')} so far, and no "
            f"predictions of {' or '.join(missing or wanted)}. Continue it with the "
            "`fastslow run` that began it, unless another process is running it; or choose a "
            "recipe that merges only the other experiments."
        )


def find_missing(run: Run, recipe: Recipe) -> list[str]:
    """Return the recipe's experiments in the run whose predictions are still to be made. An
    experiment is left out if none of its collections has labels, because it is never trained; the
    fallback is returned even then."""
    begun = [name for name in _list_wanted(recipe) if name in run.experiments()]
    there = _list_predicted(run, begun)
    absent = [name for name in begun if name not in there]
    return [name for name in absent if name == recipe.fallback or _can_be_trained(name, run)]


def describe_caveats(run: Run, recipe: Recipe) -> list[str]:
    """Return warnings about the recipe's scores in the run, for example that the runtimes are
    estimates, or that some experiments have no predictions yet."""
    sentences = []
    if estimates := warn_of_estimates(run.label_sources()):
        sentences.append(f"{estimates} The scores say how well the estimates are predicted.")
    if run.is_quick:
        sentences.append(
            f"This is a quick look, by `--limit`: {QUICK_LOOK}. Its scores mean little."
        )
    if missing := find_missing(run, recipe):
        sentences.append(
            f"The run is not finished: these numbers do not include {' or '.join(missing)} yet."
        )
    return sentences


def _list_wanted(recipe: Recipe) -> list[str]:
    return recipe.and_fallback(recipe.names())


def _list_predicted(run: Run, names: Sequence[str]) -> list[str]:
    """Return the names that are experiments of the run and have predictions."""
    begun = run.experiments()
    return [n for n in names if n in begun and run.predictions(n, "test").is_file()]


def _can_be_trained(experiment: str, run: Run) -> bool:
    """Return whether any collection that the experiment ranks has labels."""
    ranked = run.record()["settings"][EXPERIMENTS][experiment].get("collections")
    if ranked is None or not run.labels.is_file():
        return True
    labelled = pl.scan_parquet(run.labels, glob=False).select(pl.col("collection").unique())
    return bool(set(ranked) & set(labelled.collect()["collection"]))


def find_members(run: Run, recipe: Recipe, part: str) -> dict[str, Path]:
    """Return, by experiment, the prediction files of the recipe's members and of its fallback.

    Members without predictions are left out; the fallback's file may be missing. Experiments that
    the run's record does not list are left out, too, because their folds may differ from the run's.

    Args:
        part: "out_of_fold" or "test".
    """
    known = _list_predicted(run, recipe.names())
    names = recipe.and_fallback(known)
    return {name: run.predictions(name, part) for name in names}


def merge_files(paths: Mapping[str, Path], recipe: Recipe) -> Iterator[pl.DataFrame]:
    """Merge prediction files, by experiment, into frames of RANKING_SCHEMA, sorted by their keys.
    The files are read in batches of graphs, so memory does not grow with their sizes."""
    for collection, frames in read_by_graphs(paths):
        yield merge_collection(collection, frames, recipe)


def merge_collection(
    collection: str, frames: Mapping[str, pl.DataFrame], recipe: Recipe
) -> pl.DataFrame:
    """Merge the experiments' predictions of one collection into a frame of RANKING_SCHEMA.
    `frames`: by experiment, the predictions of the collection's graphs by all folds and seeds. If
    no member of the recipe is among the experiments, the fallback's ranking is returned."""
    wanted = recipe.and_fallback(recipe.weights(collection))
    scaled = {n: normalise(frames[n], recipe.method) for n in wanted if n in frames}
    return merge_scaled(collection, scaled, recipe)


def merge_scaled(
    collection: str, scaled: Mapping[str, pl.DataFrame], recipe: Recipe
) -> pl.DataFrame:
    """Merge normalised predictions of one collection into a frame of RANKING_SCHEMA.

    Args:
        scaled: by experiment, the result of `normalise`.

    Raises InputError if a member with a weight in this collection lacks the collection or some of
    its graphs, unless the recipe allows it.
    """
    weights = recipe.weights(collection)
    members = {name: scaled[name] for name in weights if name in scaled}
    check_members(recipe, collection, members)
    fallback = scaled.get(recipe.fallback or "")
    if not members:
        if fallback is None:
            raise InputError(
                f"recipe {recipe.name}: no member predicts {collection}. Give it a fallback."
            )
        return fallback
    if "graphs" not in recipe.allow_missing:
        return merge(members, weights, recipe.method)
    parts = [merge(part, weights, recipe.method) for part in split_by_presence(members)]
    merged = pl.concat([pl.DataFrame(schema=RANKING_SCHEMA), *parts])
    if fallback is not None:
        merged = pl.concat([merged, fallback.join(merged, on=GRAPH, how="anti")])
    return merged.sort(REQUEST_KEYS)


TABLE_SCHEMA = pl.Schema(
    {
        "collection": pl.String(),
        "graph": pl.String(),
        # name of the graph's group: graphs that the run's folds keep together. Groups are the
        # sampling unit of the statistics.
        "group": pl.String(),
        "member": pl.String(),
        "score": pl.Float64(),
    }
)
SEEDS_SCHEMA = pl.Schema({**TABLE_SCHEMA, "seed": pl.Int32()})


def alone(experiment: str, method: Method = "mean_rank") -> Recipe:
    """Return a recipe that merges only this experiment; `method` averages its folds and seeds."""
    members = {"members": {experiment: 1.0}, "allow_missing": {"members"}}
    return make_recipe(
        f"experiment {experiment!r}", {"name": experiment, "method": method, **members}
    )


@dataclass(frozen=True, eq=False)
class RunScores:
    """The out-of-fold scores of a run."""

    # score table (see TABLE_SCHEMA): each graph's score by every experiment, and by the recipe
    table: pl.DataFrame
    # frame of SEEDS_SCHEMA: each graph's score by every seed of the experiments with several seeds
    seeds: pl.DataFrame


def merge_run(run: Run, recipe: Recipe) -> tuple[RunScores, dict[str, np.ndarray]]:
    """Write the recipe's rankings of the labelled graphs (out of fold) and of the test graphs.
    Returns the out-of-fold scores and, by ID of each test graph, the order of its configurations
    (see order_graphs). Raises InputError if the recipe does not fit the run's experiments, or a
    member is not finished."""
    check_mergeable(run, recipe)
    table: list[pl.DataFrame] = []
    seeds: list[pl.DataFrame] = []
    orders: dict[str, np.ndarray] = {}
    scored = _score_batches(run, _list_scored(run, recipe), table, seeds)
    merged = {
        "out_of_fold": (batch[recipe.label] for batch in scored if recipe.label in batch),
        "test": _order_batches(merge_files(find_members(run, recipe, "test"), recipe), orders),
    }
    for part, batches in merged.items():
        path = run.ranking(recipe.name, part)
        remove_leftovers(path.parent, ())
        write_batches(batches, predictions.RANKING_SCHEMA, path)
    return RunScores(_join(table), _join(seeds, SEEDS_SCHEMA)), orders


def score_run(run: Run, recipe: Recipe | None = None) -> RunScores:
    """Score every labelled graph out of fold, for every experiment of the run and for the recipe.

    The predictions of an experiment's seeds are averaged, on the scale of the recipe's method
    (mean_rank without a recipe), and scored. A single seed scores less, but this average is what
    the experiment contributes to the ensemble.

    Raises InputError if the recipe does not fit the run, or predictions that it requires are
    missing.
    """
    if recipe is not None:
        check_recipe(recipe, run.experiments())
    table: list[pl.DataFrame] = []
    seeds: list[pl.DataFrame] = []
    deque(_score_batches(run, _list_scored(run, recipe), table, seeds), maxlen=0)
    return RunScores(_join(table), _join(seeds, SEEDS_SCHEMA))


def _list_scored(run: Run, recipe: Recipe | None) -> dict[str, Recipe]:
    """Return the recipes to score by label in the score table: one per experiment, and `recipe`."""
    method: Method = "mean_rank" if recipe is None else recipe.method
    recipes = {name: alone(name, method) for name in run.experiments()}
    return recipes if recipe is None else {**recipes, recipe.label: recipe}


def score_recipes(run: Run, recipes: Mapping[str, Recipe]) -> pl.DataFrame:
    """Score every labelled graph out of fold for every recipe.

    A recipe without a member in a collection is scored by its fallback, or has no rows.

    Args:
        recipes: by the name that the column `member` of the result shows.

    Returns:
        A frame of TABLE_SCHEMA, sorted by collection and graph, then in the order of `recipes`.

    Raises InputError if a member lacks graphs, and the recipe does not allow it.
    """
    table: list[pl.DataFrame] = []
    deque(_score_batches(run, recipes, table), maxlen=0)
    return _join(table)


def _score_batches(
    run: Run,
    recipes: Mapping[str, Recipe],
    table: list[pl.DataFrame],
    seeds: list[pl.DataFrame] | None = None,
) -> Iterator[dict[str, pl.DataFrame]]:
    """Merge and score out-of-fold predictions, one batch of graphs after another.

    Scores of the merged rankings are appended to `table`. Unless `seeds` is None, the scores of
    each seed of the experiments with several seeds are appended to it.

    Yields:
        By the label (key in `recipes`) of each recipe, its ranking of the batch's graphs.
    """
    labels, groups = predictions.read(run.labels), read_draws(run)
    described = run.record()["settings"].get(EXPERIMENTS, {})
    used = {name for one in recipes.values() for name in one.and_fallback(one.names())}
    paths = {name: run.predictions(name, "out_of_fold") for name in described if name in used}
    for collection, frames in read_by_graphs({n: p for n, p in paths.items() if p.is_file()}):
        batch_labels = labels_of(labels, frames.values())
        scaled: dict[Method, dict[str, pl.DataFrame]] = {}
        rankings: dict[str, pl.DataFrame] = {}
        for label, recipe in recipes.items():
            if recipe.method not in scaled:
                scaled[recipe.method] = {
                    name: normalise(frame, recipe.method) for name, frame in frames.items()
                }
            if any(n in frames for n in recipe.and_fallback(recipe.weights(collection))):
                rankings[label] = merge_scaled(collection, scaled[recipe.method], recipe)
                scores = score_predictions(rankings[label], batch_labels)
                table.append(name_scores(scores, label, groups))
        for name, frame in frames.items():
            if seeds is None or frame["seed"].n_unique() < 2:
                continue
            for (seed,), part in frame.group_by("seed", maintain_order=True):
                scores = name_scores(score_predictions(part, batch_labels), name, groups)
                seeds.append(scores.with_columns(seed=pl.lit(seed, SEEDS_SCHEMA["seed"])))
        yield rankings


def _order_batches(
    batches: Iterable[pl.DataFrame], orders: dict[str, np.ndarray]
) -> Iterator[pl.DataFrame]:
    """Yield the rankings unchanged; add the order of each graph's configurations to `orders`."""
    for batch in batches:
        orders.update(order_graphs(batch))
        yield batch


def order_graphs(ranking: pl.DataFrame) -> dict[str, np.ndarray]:
    """Return, by graph ID, the configuration numbers from fastest to slowest. A graph ID is
    collection:graph. Equal scores are ordered by configuration number."""
    by_graph = ranking.sort("score", "config").group_by("collection", "graph").agg("config")
    return {f"{c}:{g}": configs.to_numpy() for c, g, configs in zip(*by_graph, strict=True)}


def _join(tables: list[pl.DataFrame], schema: pl.Schema = TABLE_SCHEMA) -> pl.DataFrame:
    whole = pl.concat([pl.DataFrame(schema=schema), *tables])
    return whole.sort("collection", "graph", maintain_order=True)


def describe_fit(run: Run, recipe: Recipe) -> str:
    """Return a sentence if the recipe was fitted on the run's labels; otherwise "". Such a recipe's
    scores in the run are too high."""
    if recipe.fitted_on is None or recipe.fitted_on != checksum(run.labels):
        return ""
    honest = "" if recipe.nested is None else f"; on others the search reaches {recipe.nested:.4f}"
    return f"Recipe {recipe.name} was fitted on these very graphs, which flatters it{honest}."


def read_groups(run: Run) -> pl.DataFrame:
    """Return a table of collection, graph and group of every labelled graph. A group is all graphs
    of one structure (a program at all its sizes), or the graph itself if folds are by graph. Groups
    are the sampling units of the statistics."""
    graphs = predictions.read(run.graphs, ["collection", "graph", "group", "labelled"])
    return graphs.filter("labelled").select("collection", "graph", "group")


def read_draws(run: Run) -> pl.DataFrame:
    """Return the table of `read_groups`, with the groups that the statistics sample. In a quick
    look all graphs are one group: few graphs and hardly trained models say nothing about other
    programs, so no interval is given."""
    groups = read_groups(run)
    return groups.with_columns(group=pl.lit("")) if run.is_quick else groups


def name_scores(scores: pl.DataFrame, member: str, groups: pl.DataFrame) -> pl.DataFrame:
    """Return a member's scores (collection, graph, score) as a frame of TABLE_SCHEMA. `groups` is
    the result of `read_draws`."""
    joined = scores.join(groups, on=["collection", "graph"], maintain_order="left")
    named = joined.with_columns(member=pl.lit(member))
    return named.select(TABLE_SCHEMA.names()).cast(TABLE_SCHEMA)


def labels_of(labels: pl.DataFrame, frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Return only the labels of the graphs in `frames`, because a join with all labels is slow."""
    graphs = pl.concat([frame.select("collection", "graph") for frame in frames]).unique()
    return labels.join(graphs, on=["collection", "graph"], how="semi")
