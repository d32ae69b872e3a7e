"""Read a bundle and rank with it. Everything is compared with its checksum before it is loaded."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import ThreadpoolController

from ensembles.recipe import check_members
from ensembles.votes import average, merge_votes
from solution.domain.graph import Graph
from solution.domain.labels import warn_of_estimates
from solution.features.preparation import Preparation
from solution.models import catalogue
from solution.models.catalogue import Model, load_model
from solution.models.light import LightModel, load_light
from solution.serving import calibration
from solution.serving.archive import KeptFolder, unpack
from solution.serving.calibration import CONFIDENCE, REGRET, Facts, Learned, describe_graph
from solution.serving.checks import check_configured, check_scores, naming
from solution.serving.ranking import Ranking, find_spread
from solution.serving.record import (
    RECORD,
    BundleRecord,
    Member,
    check_model_record,
    check_places,
    read_bundle_record,
)
from solution.system.errors import InputError
from solution.system.processes import one_thread
from solution.system.sealing import check_files, read_record

if TYPE_CHECKING:
    import polars as pl

    from solution.serving.session import Session

DEFAULT = Path(__file__).parent / "default.zip"  # made by `make default-bundle`


@dataclass(frozen=True, eq=False, repr=False)
class Bundle:
    """A packed ensemble whose files are what was written; models are loaded when they are asked."""

    folder: Path
    record: BundleRecord
    source: Path  # that messages name
    _models: dict[str, Model | LightModel] = field(default_factory=dict)
    _kept: object = None  # the folder lives as long as the bundle

    @property
    def collections(self) -> list[str]:
        """Those that it ranks."""
        return self.record.collections()

    @property
    def caveat(self) -> str:
        """What to know before it is trusted; empty where this program's code trained it."""
        from solution.runs.fingerprint import fingerprint_code

        if self.record.code == fingerprint_code():
            return ""
        words = "was trained by other code than this program's; its scores may not be those that"
        return f"{self.source}: {words} its card gives."

    def __repr__(self) -> str:
        return f"<Bundle {self.source}: {self.describe()}>"

    def __getstate__(self) -> dict[str, object]:
        """A copy has its models with it where their folder goes with this bundle."""
        if self._kept is not None:
            self.load()
        state = {**self.__dict__, "_kept": None}
        state.pop("_libraries", None)  # of this process; found again
        return state

    def describe(self) -> str:
        """What it is and what it learned from."""
        graphs = ", ".join(f"{len(own)} of {name}" for name, own in self.record.programs.items())
        kind = "students of an ensemble" if self.record.is_light else "models"
        estimates = warn_of_estimates(self.record.label_sources)
        return f"{len(self.record.members)} {kind} that learned from {graphs}. {estimates}".rstrip()

    def rank(
        self,
        graph: Graph | str | Path,
        facts: Facts | None = None,
        *,
        regret: float = REGRET,
        confidence: float = CONFIDENCE,
    ) -> Ranking:
        """Rank the configurations of a graph, and say how many of them to measure.

        Args:
            graph: whole, as a file has it, or as a store keeps it; or the path of its file.
            facts: of the whole program, where the graph is pruned; a file of a store has them.
            regret: how much slower than the best the best of those measured may be.
            confidence: for which share of programs.

        Raises:
            InputError: it has no model of the graph's collection, or one cannot be used.
        """
        calibration.check_promise(regret, confidence)
        asked, known = _read(graph)
        name, own = asked.collection.name, facts or known or describe_graph(asked)
        votes, learned = self.vote(asked), self._learned[name]
        found = calibration.measure(own, asked.num_configs, learned, regret, confidence)
        every = [scores for of_kind in votes.values() for _, scores in of_kind]
        return Ranking(
            graph=asked,
            scores=self._merge(name, votes),
            spread=find_spread(every),
            measure=found.k,
            reason=found.reason,
            known=self.record.knows(own.architecture),
            regret=regret,
            confidence=confidence,
            label_sources=self.record.label_sources,
        )

    def session(self, graph: Graph | str | Path, reference: int | None = None) -> "Session":
        """Score configurations that are still to come, so that all their scores compare.

        Args:
            graph: a program that is whole; some of its configurations become the fixed list beside
                which others are scored, made ones where it has just one.
            reference: how many; by default solution.serving.session.REFERENCE.
        """
        from solution.serving.session import REFERENCE, open_session

        return open_session(self, _read(graph)[0], REFERENCE if reference is None else reference)

    def predict(self, graph: Graph) -> "dict[str, pl.DataFrame]":
        """By experiment, what its models predict, as frames of solution.domain.predictions."""
        import polars as pl

        from solution.domain.predictions import make_frame

        places = np.arange(graph.num_configs)
        return {
            experiment: pl.concat(
                [make_frame(graph.key, places, scores, m.fold, m.seed) for m, scores in own]
            )
            for experiment, own in self.vote(graph).items()
        }

    def vote(self, graph: Graph) -> dict[str, list[tuple[Member, np.ndarray]]]:
        """By experiment, the scores (configs,) float32 of each of its models, by fold and seed.

        Those of the fallback only where it ranks.
        """
        votes: dict[str, list[tuple[Member, np.ndarray]]] = {}
        for member, model, prepared in self.prepare(graph):
            with naming(self.source, member, "cannot score it"):
                scores = model.ranker.predict(prepared)
            check_scores(scores, graph, self.source, member)
            votes.setdefault(member.experiment, []).append((member, scores.astype(np.float32)))
        return {
            name: sorted(own, key=lambda vote: (vote[0].fold, vote[0].seed))
            for name, own in votes.items()
        }

    def _merge(
        self, collection: str, votes: dict[str, list[tuple[Member, np.ndarray]]]
    ) -> np.ndarray:
        """The scores (configs,) float32 that the recipe makes of the votes."""
        recipe = self.record.recipe
        weights = recipe.weights(collection)
        own = {name: [scores for _, scores in found] for name, found in votes.items()}
        members = {name: scores for name, scores in own.items() if name in weights}
        check_members(recipe, collection, members)
        if members:
            return merge_votes(members, weights, recipe.method)
        return average(own[recipe.fallback or ""], recipe.method)

    def prepare(self, graph: Graph) -> Iterator[tuple[Member, Model | LightModel, Graph]]:
        """The models that rank the graph (see `models`), each with the graph as it needs it."""
        check_configured(graph)
        prepared: dict[Preparation, Graph] = {}
        for member, model in self.models(graph.collection.name):
            if model.preparation not in prepared:
                prepared[model.preparation] = model.preparation(graph)
            yield member, model, prepared[model.preparation]

    def models(self, collection: str) -> Iterator[tuple[Member, Model | LightModel]]:
        """The models that rank graphs of the collection.

        Matrix products have one thread meanwhile.
        """
        with one_thread(self._libraries):
            for member in self.choose(collection):
                yield member, self._load(member)

    def choose(self, collection: str) -> list[Member]:
        """The models of the recipe's members, or where there is none those of its fallback."""
        recipe = self.record.recipe
        members = [member for member in self.record.members if collection in member.collections]
        weighed = [m for m in members if m.experiment in recipe.weights(collection)]
        chosen = weighed or [m for m in members if m.experiment == recipe.fallback]
        if not chosen:
            raise InputError(
                f"{self.source}: has no model for {collection}, it has those for "
                f"{', '.join(self.collections)}."
            )
        return chosen

    @cached_property
    def _libraries(self) -> ThreadpoolController | None:
        """What students multiply with is there when they are: it need not be found each time."""
        return ThreadpoolController() if self.record.is_light else None

    @cached_property
    def _learned(self) -> dict[str, Learned]:
        """By collection, what k is calibrated on."""
        return {name: Learned(self.record.programs.get(name, ())) for name in self.collections}

    def load(self) -> None:
        """Load all models, and find what they multiply with, before they are asked."""
        for member in self.record.members:
            self._load(member)
        for learned in self._learned.values():
            learned.get_ready()
        _ = self._libraries

    def _load(self, member: Member) -> Model | LightModel:
        if member.folder not in self._models:
            with naming(self.source, member, "cannot be loaded"):
                load = load_light if self.record.is_light else load_model
                self._models[member.folder] = load(self.folder / member.folder)
        return self._models[member.folder]


def load_bundle(path: str | Path = DEFAULT) -> Bundle:
    """Open a bundle, a folder or a zip, and compare everything in it with its checksums.

    Args:
        path: by default the bundle that comes with the package, which learned from its sample and
            from collected programs.

    Raises InputError where it is damaged, holds anything unknown, or is of other features.
    """
    source = Path(path)
    if source.name == RECORD and source.is_file():
        raise InputError(f"{source}: is the record of a bundle. Give its folder, {source.parent}.")
    if source.exists() and not source.is_dir():
        kept = KeptFolder()
        unpack(source, kept.path)
        bundle = _open(kept.path, source, kept)
    else:
        bundle = _open(source, source, None)
    if bundle.record.is_light:  # small: who asks first need not wait for them
        bundle.load()
    return bundle


def load_run(path: str | Path, recipe: str | Path | None = None) -> Bundle:
    """The models of a run, merged by a recipe, as a bundle that is packed for this process.

    Args:
        recipe: its name or file; None: the one that the run was merged by last.
    """
    from ensembles.last_recipe import choose_recipe
    from solution.runs.folder import Run
    from solution.serving.packing import pack

    source = Path(path)
    kept = KeptFolder()
    run = Run.existing(source)
    chosen = choose_recipe(run, None if recipe is None else str(recipe))
    folder = pack(run, chosen, kept.path / "bundle")
    return _open(folder, source, kept)


def _read(graph: Graph | str | Path) -> tuple[Graph, Facts | None]:
    """The graph, and what its file knows of the whole program."""
    if isinstance(graph, Graph):
        return graph, None
    from solution.serving.reading import read_question

    question = read_question(graph)
    return question.graph, question.facts


def _open(folder: Path, source: Path, kept: object) -> Bundle:
    record = read_bundle_record(folder, source)
    check_places(folder, record, source)
    try:
        check_files(folder, record.files, source / RECORD)
    except InputError as error:
        raise InputError(str(error).replace(str(folder), str(source))) from error
    for member in record.members:
        found = read_record(folder / member.folder / catalogue.RECORD, "a model")
        check_model_record(found, member.folder, source)
    return Bundle(folder, record, source, _kept=kept)
