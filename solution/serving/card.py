"""Write the model card of a bundle: README.md with a YAML head, as model hubs read it.

Source: "Model Cards", Hugging Face Hub documentation (the field model-index); Mitchell and others,
"Model Cards for Model Reporting", FAT* 2019. JSON is YAML, so the head is written as JSON values.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from solution.domain.collection import collection
from solution.domain.graph import warn_of_estimates
from solution.serving.calibration import CONFIDENCE, REGRET, count_programs, quantile
from solution.serving.record import CARD, BundleRecord, Score

AVERAGED = "The bundle averages these very models, of all folds and seeds."
UNSEEN = {  # {scheme of folds: what the models that score a graph have not seen, in words}
    "family": "any program of its family, such as another ResNet",
    "architecture": "its program",
    "graph": "it, but perhaps its program at another size",
}
REFITTED = (
    "The scores are those of models that left out a fold each. The models in the bundle left out "
    "none, with the same settings, and can have no such score. A model that stops early learned "
    "from 85% of the labelled graphs; the other 15% decided when it stopped."
)
BODY = """
# {name}

Ranks compiler configurations of tensor programs from fastest to slowest: {models} models of
{experiments}, merged by the recipe `{recipe}` ({method}).

    fastslow rank FILE --with {name}

| Collection | Metric | Out of fold | 95% interval | Graphs | Programs | Measure |
|---|---|---|---|---|---|---|
{rows}

Out of fold: every graph is scored by models that have not seen {unseen}. {claim}

{caveat}No interval is given for fewer than five groups of graphs, or if one group has more than
half of them. Measure: how many of the first are enough to be within {regret:.0%} of the best for
{confidence:.0%} of such programs; a dash where there are too few to say.

| Collection | Family | Out of fold | Graphs |
|---|---|---|---|
{families}
{teacher}
## Limits

The scores hold for programs like those learned from, on the hardware and with the compiler on which
their runtimes were measured, and for no others. For a program that is unlike them no number to
measure is given. The checksums find damage; they do not prove who packed the bundle.

## Made with

Features version {features}, code {code}, commit {commit}; {versions}.
"""


def write_card(record: BundleRecord, folder: Path) -> None:
    """Write the card of a bundle into its folder."""
    head = "".join(f"{key}: {json.dumps(value)}\n" for key, value in _describe(record).items())
    rows = "\n".join(_write_row(record, name) for name in record.collections())
    body = BODY.format(
        name=record.name,
        models=len(record.members),
        experiments=", ".join(sorted({member.experiment for member in record.members})),
        recipe=record.recipe.name,
        method=record.recipe.method,
        rows=rows,
        unseen=UNSEEN[record.scheme],
        claim=REFITTED if record.refitted else AVERAGED,
        caveat="".join(f"{words} " for words in _list_caveats(record)),
        families="\n".join(_list_families(record)),
        teacher=_describe_teacher(record),
        regret=REGRET,
        confidence=CONFIDENCE,
        features=record.features,
        code=record.code,
        commit=record.commit or "unknown",
        versions=", ".join(f"{name} {version}" for name, version in record.versions.items()),
    )
    (folder / CARD).write_text(f"---\n{head}---\n{body}", encoding="utf-8")


def _list_caveats(record: BundleRecord) -> Iterator[str]:
    """Yield warnings about scores: estimated runtimes, a recipe fitted on the same graphs."""
    if estimates := warn_of_estimates(record.label_sources):
        yield f"**{estimates}** The scores say how well the estimates are predicted."
    if record.caveat:
        yield record.caveat


def _list_families(record: BundleRecord) -> Iterator[str]:
    """Yield a table row for each collection and family (see name_family), with an interval if there
    are enough graphs."""
    for name, families in sorted(record.families.items()):
        for family, score in sorted(families.items()):
            yield f"| {name} | {family or 'unnamed'} | {_show(score)} | {score.graphs} |"


def _describe_teacher(record: BundleRecord) -> str:
    """Return the teacher ensemble's scores and the models' mean difference as text, or ""."""
    teacher = record.teacher
    if teacher is None:
        return ""
    scores = ", ".join(f"{name} {score.value:.3f}" for name, score in teacher.scores.items())
    text = f"\nThe models learned from the ensemble `{teacher.name}`, which has {scores}."
    gain = teacher.gain
    text += f" Against it they gain {_show(gain, '+')} in the mean of the collections."
    return text + " A model that taught about a fold had not seen it.\n"


def _show(score: Score, sign: str = "") -> str:
    """Format the score, with its interval if it has one."""
    value, low, high = score.value, score.low, score.high
    if low is None or high is None:
        return f"{value:{sign}.3f}"
    return f"{value:{sign}.3f} ({low:{sign}.3f} to {high:{sign}.3f})"


def _describe(record: BundleRecord) -> dict[str, Any]:
    results = [_describe_score(name, score) for name, score in sorted(record.scores.items())]
    return {
        "library_name": "fast-or-slow",
        "tags": ["compiler", "ranking", "xla", "tpugraphs", "graph-machine-learning"],
        "model-index": [{"name": record.name, "results": results}],
    }


def _describe_score(name: str, score: Score) -> dict[str, Any]:
    metric: dict[str, Any] = {
        "type": "kendall_tau" if collection(name).kind == "layout" else "top_5_score",
        "name": f"{collection(name).metric}, out of fold, mean of {score.graphs} graphs",
        "value": score.value,
    }
    if score.low is not None and score.high is not None:
        metric["args"] = {"interval": [score.low, score.high], "level": 0.95}
    return {
        "task": {"type": "graph-ml", "name": "Ranking of compiler configurations"},
        "dataset": {"type": name, "name": name, "split": "out of fold"},
        "metrics": [metric],
    }


def _write_row(record: BundleRecord, name: str) -> str:
    score, programs = record.scores.get(name), record.programs.get(name, ())
    calibrated = [program for program in programs if program.steps]
    k = quantile(calibrated, REGRET, CONFIDENCE)
    shown, interval, graphs = "-", "-", "-"
    if score is not None:
        shown, graphs = f"{score.value:.3f}", str(score.graphs)
        if score.low is not None and score.high is not None:
            interval = f"{score.low:.3f} to {score.high:.3f}"
    count = count_programs(programs)
    cells = [name, collection(name).metric, shown, interval, graphs, str(count), str(k or "-")]
    return f"| {' | '.join(cells)} |"
