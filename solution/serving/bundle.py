"""Load a bundle and rank with it. Every file is compared with its checksum before it is loaded."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import ThreadpoolController

from ensembles.recipe import check_members, choose_recipe
from ensembles.votes import merge_votes, rank
from solution.domain.graph import Graph, warn_of_estimates
from solution.features.preparation import Preparation
from solution.models import catalogue
from solution.models.catalogue import Model, load_model
from solution.models.light import LightModel, load_light
from solution.serving import calibration
from solution.serving.archive import unpack
from solution.serving.calibration import CONFIDENCE, REGRET, Facts, Learned, describe_graph
from solution.serving.ranking import Ranking
from solution.serving.record import (
    RECORD,
    BundleRecord,
    Member,
    check_model_record,
    check_places,
    read_bundle_record,
)
from solution.system.errors import InputError
from solution.system.scratch import ScratchFolder
from solution.system.sealing import check_files, read_record

if TYPE_CHECKING:
    import polars as pl

    from solution.serving.session import Session

DEFAULT = Path(__file__).parent / "default.zip"  # made by `make default-bundle`


class NoModelError(InputError):
    """Raised if a bundle has no model for a graph's collection."""


@dataclass(frozen=True, eq=False, repr=False)
class Bundle:
    """A packed ensemble with verified checksums; each model is loaded at its first use."""

    folder: Path
    record: BundleRecord
    # the path that error messages name
    source: Path
    # {folder of a member: its loaded model}
    _models: dict[str, Model | LightModel] = field(default_factory=dict)
    # {collection: {experiment: weight}}
    _weights: dict[str, dict[str, float]] = field(default_factory=dict)
    # {collection: structures of the programs that its models learned from}
    _architectures: dict[str, frozenset[str]] = field(default_factory=dict)
    _kept: object = None  # keeps a temporary folder alive as long as the bundle

    @property
    def collections(self) -> list[str]:
        """Return the names of the collections whose graphs the bundle ranks."""
        return self.record.collections()

    @property
    def caveat(self) -> str:
        """Return a warning if another version of the code trained the bundle; otherwise ""."""
        from solution.runs.fingerprint import fingerprint_code

        if self.record.code == fingerprint_code():
            return ""
        words = "was trained by other code than this program's; its scores may not be those that"
        return f"{self.source}: {words} its card gives."

    def __repr__(self) -> str:
        return f"<Bundle {self.source}: {self.describe()}>"

    def __getstate__(self) -> dict[str, object]:
        """Return the state to pickle, with all models loaded if the folder is temporary."""
        if self._kept is not None:
            self.load()
        state = {**self.__dict__, "_kept": None}
        state.pop("_libraries", None)  # libraries of this process; the copy finds its own
        return state

    def describe(self) -> str:
        """Return in a few words which models the bundle holds and what they learned from."""
        programs = self.record.programs.items()
        graphs = ", ".join(f"{len(graphs)} of {name}" for name, graphs in programs)
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
        """Rank a graph's configurations and estimate k, how many of the first to measure: for a
        share `confidence` of programs, the fastest of these k is at most the share `regret` slower
        than the fastest of all.

        `graph`: a graph as read from a file, or the path of a file or of a store's file. `facts`:
        sizes of the whole program, needed for a pruned graph unless its path is given. Raises
        InputError if no model ranks the collection, or a model cannot be used.
        """
        calibration.check_promise(regret, confidence)
        program, read_facts = _read(graph)
        name, size = program.collection.name, facts or read_facts or describe_graph(program)
        votes = {
            experiment: [scores for _, scores in voted]
            for experiment, voted in self.vote(program).items()
        }
        measure = calibration.measure(
            size, program.num_configs, self._learned[name], regret, confidence
        )
        return Ranking(
            graph=program,
            scores=merge_votes(votes, self._weigh(name), self.record.recipe.method),
            spread=_find_spread([scores for voted in votes.values() for scores in voted]),
            measure=measure.k,
            reason=measure.reason,
            known=size.architecture in self._find_architectures(name),
            regret=regret,
            confidence=confidence,
            label_sources=self.record.label_sources,
        )

    def session(self, graph: Graph | str | Path, reference: int | None = None) -> "Session":
        """Return a scorer for new configurations of an unpruned program. All its scores are
        comparable, because its reference list is fixed. The list has at most `reference` of the
        graph's configurations, or of generated configurations if it has only one."""
        from solution.serving.session import REFERENCE, open_session

        program, _ = _read(graph)
        check_configured(program)
        name = program.collection.name
        self.choose(name)  # raises if no model ranks the collection
        return open_session(
            program,
            REFERENCE if reference is None else reference,
            partial(self.models, name),
            self._weigh(name),
        )

    def predict(self, graph: Graph) -> "dict[str, pl.DataFrame]":
        """Return each experiment's frame of its models' scores (solution.domain.predictions)."""
        import polars as pl

        from solution.domain.predictions import make_frame

        configs = np.arange(graph.num_configs)
        return {
            experiment: pl.concat(
                [make_frame(graph.key, configs, scores, m.fold, m.seed) for m, scores in voted]
            )
            for experiment, voted in self.vote(graph).items()
        }

    def vote(self, graph: Graph) -> dict[str, list[tuple[Member, np.ndarray]]]:
        """Return {experiment: [(model, its scores (configs,) float32)]}, sorted by fold and seed.
        The fallback votes only if no member of the recipe ranks the collection."""
        votes: dict[str, list[tuple[Member, np.ndarray]]] = {}
        for member, model, prepared in self.prepare(graph):
            with naming(self.source, member, "cannot score it"):
                scores = model.ranker.predict(prepared)
            if scores.shape != (graph.num_configs,) or not np.isfinite(scores).all():
                raise InputError(
                    f"{self.source}: {member.folder} gives no finite score to each of the "
                    f"{graph.num_configs} configurations of {graph.name}. Train it again."
                )
            votes.setdefault(member.experiment, []).append((member, scores.astype(np.float32)))
        for voted in votes.values():
            voted.sort(key=lambda vote: (vote[0].fold, vote[0].seed))
        return votes

    def prepare(self, graph: Graph) -> Iterator[tuple[Member, Model | LightModel, Graph]]:
        """Yield (member, model, graph prepared for it) for each model of the graph's collection."""
        check_configured(graph)
        prepared: dict[Preparation, Graph] = {}
        for member, model in self.models(graph.collection.name):
            if model.preparation not in prepared:
                prepared[model.preparation] = model.preparation(graph)
            yield member, model, prepared[model.preparation]

    def models(self, collection: str) -> Iterator[tuple[Member, Model | LightModel]]:
        """Yield the collection's models. Meanwhile BLAS uses one thread, because the models' matrix
        products are too small for more."""
        libraries = self._libraries or ThreadpoolController()
        with libraries.limit(limits=1, user_api="blas"):
            for member in self.choose(collection):
                yield member, self._load(member)

    def choose(self, collection: str) -> list[Member]:
        """Return the models of the recipe's members for the collection or, if there are none, the
        fallback's. Raises NoModelError if there is no model at all."""
        chosen = [
            member
            for member in self.record.members
            if collection in member.collections and member.experiment in self._weigh(collection)
        ]
        if not chosen:
            raise NoModelError(
                f"{self.source}: has no model for {collection}, it has models for "
                f"{', '.join(self.collections)}."
            )
        return chosen

    def _weigh(self, collection: str) -> dict[str, float]:
        """Return {experiment: weight} of the experiments that rank the collection. Raises
        InputError if the bundle lacks a member that the recipe requires."""
        if collection not in self._weights:
            weights, fallback = self.weights(collection), self.record.recipe.fallback
            check_members(self.record.recipe, collection, weights)
            present = self._list_present(collection)
            self._weights[collection] = weights or ({fallback: 1.0} if fallback in present else {})
        return self._weights[collection]

    def weights(self, collection: str) -> dict[str, float]:
        """Return {experiment: weight} of the recipe's members that the bundle has for the
        collection."""
        present = self._list_present(collection)
        weights = self.record.recipe.weights(collection)
        return {name: weight for name, weight in weights.items() if name in present}

    def _list_present(self, collection: str) -> set[str]:
        return {m.experiment for m in self.record.members if collection in m.collections}

    @cached_property
    def _libraries(self) -> ThreadpoolController | None:
        """Return a controller of the loaded BLAS libraries; None if loading a model may load more
        libraries."""
        return ThreadpoolController() if self.record.is_light else None

    @cached_property
    def _learned(self) -> dict[str, Learned]:
        """Return {collection: programs that calibrate how many configurations to measure}."""
        return calibration.learn(
            {name: self.record.programs.get(name, ()) for name in self.collections},
            {name: self.weights(name) for name in self.collections},
            by_family=self.record.scheme == "family",
        )

    def _find_architectures(self, collection: str) -> frozenset[str]:
        """Return the structures (Graph.architecture) of all programs that the collection's models
        learned from; a model may have learned from several collections."""
        if collection not in self._architectures:
            names = {name for member in self.choose(collection) for name in member.collections}
            programs = [self.record.programs.get(name, ()) for name in names]
            self._architectures[collection] = frozenset(
                program.architecture for graphs in programs for program in graphs
            )
        return self._architectures[collection]

    def load(self) -> None:
        """Load all models and fill all caches, so that the first request does not wait."""
        for member in self.record.members:
            self._load(member)
        for collection, learned in self._learned.items():
            if self._weigh(collection):
                self._find_architectures(collection)
            learned.get_ready()
        _ = self._libraries

    def _load(self, member: Member) -> Model | LightModel:
        if member.folder not in self._models:
            with naming(self.source, member, "cannot be loaded"):
                load = load_light if self.record.is_light else load_model
                self._models[member.folder] = load(self.folder / member.folder)
        return self._models[member.folder]


def load_bundle(path: str | Path = DEFAULT) -> Bundle:
    """Open a bundle, which is a folder or a zip, and compare every file's checksum. Default: the
    package's bundle, which learned from the sample and from collected programs. Raises InputError
    if it is damaged, has unknown files, or was made with another version of the features."""
    source = Path(path)
    if source.name == RECORD and source.is_file():
        raise InputError(f"{source}: is the record of a bundle. Give its folder, {source.parent}.")
    if source.exists() and not source.is_dir():
        kept = ScratchFolder()
        unpack(source, kept.path)
        bundle = _open(kept.path, source, kept)
    else:
        bundle = _open(source, source, None)
    # its models are small: load them now, so that the first request does not wait
    if bundle.record.is_light:
        bundle.load()
    return bundle


def load_run(path: str | Path, recipe: str | Path | None = None) -> Bundle:
    """Return a run's models, merged by a recipe (None: the last one used), as a bundle."""
    from solution.runs.folder import Run
    from solution.serving.packing import pack

    source = Path(path)
    kept = ScratchFolder()
    run = Run.existing(source)
    chosen = choose_recipe(run, None if recipe is None else str(recipe))
    folder = pack(run, chosen, kept.path / "bundle")
    return _open(folder, source, kept)


def check_configured(graph: Graph) -> None:
    """Raise InputError if the configurations are compile options, which no bundle ranks."""
    if graph.options is not None:
        raise InputError(
            f"{graph.name}: expected layouts or tiles to rank, found compile options. Look their "
            "runtimes up with `fastslow choose FILE --replay`, or find better ones with `fastslow "
            "choose PROGRAM --over options`."
        )


@contextmanager
def naming(source: Path, member: Member, what: str) -> Iterator[None]:
    """Turn any error in the block into an InputError that names the bundle, the model and `what`,
    such as "cannot be loaded"."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{source}: {error}") from error
    except Exception as error:
        said = " ".join(str(error).split())[:200]
        raise InputError(
            f"{source}: {member.folder} {what} ({type(error).__name__}: "
            f"{said or 'it may be of other collections than its record says'})."
        ) from error


def _read(graph: Graph | str | Path) -> tuple[Graph, Facts | None]:
    """Return the graph, and the whole program's sizes if `graph` is a path; otherwise None."""
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


def _find_spread(votes: list[np.ndarray]) -> np.ndarray:
    """Return the standard deviation (configs,) of each configuration's ranks over the models; NaN
    for a single model. `votes`: each model's scores (configs,)."""
    if len(votes) == 1:
        return np.full(len(votes[0]), np.nan)
    return np.asarray(np.std([rank(scores) for scores in votes], axis=0))
