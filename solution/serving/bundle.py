"""Load a bundle and rank with it. Every file is compared with its checksum before it is loaded."""

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
from solution.serving.archive import unpack
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
from solution.system.scratch import ScratchFolder
from solution.system.sealing import check_files, read_record

if TYPE_CHECKING:
    import polars as pl

    from solution.serving.session import Session

DEFAULT = Path(__file__).parent / "default.zip"  # made by `make default-bundle`


@dataclass(frozen=True, eq=False, repr=False)
class Bundle:
    """A packed ensemble with verified checksums; each model is loaded at its first use."""

    folder: Path
    record: BundleRecord
    source: Path  # the path that error messages name
    _models: dict[str, Model | LightModel] = field(default_factory=dict)
    _kept: object = None  # keeps a temporary folder alive as long as the bundle

    @property
    def collections(self) -> list[str]:
        """Return the names of the collections that the bundle ranks."""
        return self.record.collections()

    @property
    def caveat(self) -> str:
        """Return a warning if other code than this program's trained the bundle; otherwise ""."""
        from solution.runs.fingerprint import fingerprint_code

        if self.record.code == fingerprint_code():
            return ""
        words = "was trained by other code than this program's; its scores may not be those that"
        return f"{self.source}: {words} its card gives."

    def __repr__(self) -> str:
        return f"<Bundle {self.source}: {self.describe()}>"

    def __getstate__(self) -> dict[str, object]:
        """Load all models before pickling if the bundle's folder is temporary: copies outlive
        it."""
        if self._kept is not None:
            self.load()
        state = {**self.__dict__, "_kept": None}
        state.pop("_libraries", None)  # belongs to this process; the copy finds its libraries again
        return state

    def describe(self) -> str:
        """Return in a few words which models the bundle holds and what they learned from."""
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
            graph: an unpruned graph, as read from its file; a graph of a store; or the path of its
                file.
            facts: sizes of the whole program, needed if the graph is pruned; a store's file has
                them.
            regret: how much slower than the best configuration the best of the measured ones may
                be.
            confidence: the share of programs for which this shall hold.

        Raises:
            InputError: the bundle has no model for the graph's collection, or a model cannot be
                used.
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
        """Return a scorer with a fixed reference list: scores of all later batches are comparable.

        Args:
            graph: the unpruned program; some of its configurations become the reference list, or
                generated ones if it has just one.
            reference: length of the list; by default solution.serving.session.REFERENCE.
        """
        from solution.serving.session import REFERENCE, open_session

        return open_session(self, _read(graph)[0], REFERENCE if reference is None else reference)

    def predict(self, graph: Graph) -> "dict[str, pl.DataFrame]":
        """Return by experiment its models' predictions, as frames of
        solution.domain.predictions."""
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
        """Return by experiment each model's scores (configs,) float32, sorted by fold and seed.

        The fallback's models vote only if no member of the recipe ranks the collection.
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
        """Return the scores (configs,) float32 that the recipe merges from the models' scores."""
        recipe = self.record.recipe
        weights = recipe.weights(collection)
        own = {name: [scores for _, scores in found] for name, found in votes.items()}
        members = {name: scores for name, scores in own.items() if name in weights}
        check_members(recipe, collection, members)
        if members:
            return merge_votes(members, weights, recipe.method)
        return average(own[recipe.fallback or ""], recipe.method)

    def prepare(self, graph: Graph) -> Iterator[tuple[Member, Model | LightModel, Graph]]:
        """Yield each model that ranks the graph (see `models`), with the graph prepared for it."""
        check_configured(graph)
        prepared: dict[Preparation, Graph] = {}
        for member, model in self.models(graph.collection.name):
            if model.preparation not in prepared:
                prepared[model.preparation] = model.preparation(graph)
            yield member, model, prepared[model.preparation]

    def models(self, collection: str) -> Iterator[tuple[Member, Model | LightModel]]:
        """Yield the models that rank graphs of the collection.

        Matrix products use one thread while the generator runs.
        """
        with one_thread(self._libraries):
            for member in self.choose(collection):
                yield member, self._load(member)

    def choose(self, collection: str) -> list[Member]:
        """Return the models of the recipe's members, or of its fallback if no member ranks it."""
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
        """Cache the controller of a light bundle's libraries: they are loaded already, search
        once."""
        return ThreadpoolController() if self.record.is_light else None

    @cached_property
    def _learned(self) -> dict[str, Learned]:
        """Return by collection the programs on which k is calibrated."""
        return {name: Learned(self.record.programs.get(name, ())) for name in self.collections}

    def load(self) -> None:
        """Load all models, the calibration and the libraries now instead of at the first
        request."""
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
    """Open a bundle, a folder or a zip, and compare every file with its checksum.

    Args:
        path: by default the bundle that comes with the package. It learned from the package's
            sample and from collected programs.

    Raises InputError if it is damaged, contains unknown files, or was made for other features.
    """
    source = Path(path)
    if source.name == RECORD and source.is_file():
        raise InputError(f"{source}: is the record of a bundle. Give its folder, {source.parent}.")
    if source.exists() and not source.is_dir():
        kept = ScratchFolder()
        unpack(source, kept.path)
        bundle = _open(kept.path, source, kept)
    else:
        bundle = _open(source, source, None)
    if bundle.record.is_light:  # small: load it now, so that the first request does not wait
        bundle.load()
    return bundle


def load_run(path: str | Path, recipe: str | Path | None = None) -> Bundle:
    """Return the models of a run, merged by a recipe, as a bundle packed for this process only.

    Args:
        recipe: its name or file; None: the recipe by which the run was merged last.
    """
    from ensembles.recipe import choose_recipe
    from solution.runs.folder import Run
    from solution.serving.packing import pack

    source = Path(path)
    kept = ScratchFolder()
    run = Run.existing(source)
    chosen = choose_recipe(run, None if recipe is None else str(recipe))
    folder = pack(run, chosen, kept.path / "bundle")
    return _open(folder, source, kept)


def _read(graph: Graph | str | Path) -> tuple[Graph, Facts | None]:
    """Return the graph, and the sizes of the whole program if its file has them."""
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
