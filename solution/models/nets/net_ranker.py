"""Wrap a net as a Ranker: prepare graphs, standardise their features, train, predict, and save.

Weights are saved as safetensors, without pickle.
"""

import dataclasses
from abc import abstractmethod
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn

from solution.domain.graph import Graph
from solution.features.nodes import Scaler, expand, fit_scaler
from solution.models.base import Ranker, check_no_options
from solution.models.nets.devices import move_inputs, one_thread, pick_device
from solution.models.nets.ranking_net import Example, as_ranking
from solution.models.nets.training_loop import train
from solution.models.nets.training_settings import TrainingSettings
from solution.models.sampling import TrainingRows, choose_rows
from solution.models.settings import check_net
from solution.system.errors import InputError
from solution.system.report import Report, silent

WEIGHTS = "weights.safetensors"


class NetSettings(Protocol):
    """The fields that NetRanker needs of a net's settings, which are a frozen dataclass."""

    @property
    def training(self) -> TrainingSettings:
        """The settings of the training loop."""
        ...


Settings = TypeVar("Settings", bound=NetSettings)
# a net's inputs for one graph: a frozen dataclass, mostly of tensors
Inputs = TypeVar("Inputs", bound=Any)


class NetRanker(Ranker, Generic[Settings, Inputs]):
    """A ranker that trains a net; a subclass defines the net, and its inputs for a graph."""

    # fields of the inputs that are tables (rows, columns) whose columns are standardised
    scaled_tables: ClassVar[tuple[str, ...]]

    def __init__(self, settings: Settings, seed: int) -> None:
        check_net(settings)
        self.settings = settings
        self.seed = seed
        self.device = pick_device()
        self.checkpoints: Path | None = None
        self.encoding = "logarithms"  # a name in solution.features.nodes.ENCODINGS
        self.net_: nn.Module | None = None
        self.scalers_: dict[str, Scaler] = {}

    @abstractmethod
    def prepare(self, graph: Graph) -> Inputs:
        """Return the net's inputs for a graph and its distinct configurations, unscaled."""

    def choose(self, graph: Graph, limit: int | None) -> TrainingRows:
        """Draw at most `limit` distinct configurations to learn from; see choose_rows."""
        return choose_rows(graph, limit, self.seed)

    @abstractmethod
    def make_net(self) -> nn.Module:
        """Return an untrained net that follows the RankingNet protocol."""

    def finish(  # noqa: B027 - most need nothing
        self,
        net: nn.Module,
        examples: Sequence[Example[Inputs]],
        validation: Sequence[Example[Inputs]],
        report: Report,
    ) -> None:
        """Hook for subclasses: change the net after its training; by default do nothing."""

    def fit(
        self, graphs: Sequence[Graph], validation: Sequence[Graph], report: Report = silent
    ) -> Self:
        training = self.settings.training
        learned = graphs if training.patience is not None else chain(graphs, validation)
        examples = [self._example(graph, training.max_configs) for graph in learned]
        self.scalers_ = {
            name: fit_scaler(getattr(example.inputs, name).numpy() for example in examples)
            for name in self.scaled_tables
        }
        examples = [self._scaled(example) for example in examples]
        held_out = [
            self._scaled(self._example(graph, training.validation_configs))
            for graph in (validation if training.patience is not None else ())
        ]
        cuda = [torch.cuda.current_device()] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=cuda), one_thread():
            torch.manual_seed(self.seed)
            self.net_ = self.make_net().to(self.device)
            train(
                self.net_,
                examples,
                held_out,
                training,
                self.seed,
                report,
                self.checkpoints,
                f"{self.settings} {self.seed} {[e.key for e in (*examples, *held_out)]}",
            )
            self.finish(self.net_, examples, held_out, report)
        return self

    def keep_checkpoints(self, folder: Path) -> None:
        self.checkpoints = folder

    def predict(self, graph: Graph) -> np.ndarray:
        if self.net_ is None:
            raise RuntimeError("fit the ranker before it predicts")
        # score each distinct configuration once: less work, and identical ones get equal scores
        inputs = self._scale(self._encoded(graph))
        with one_thread():
            scores = as_ranking(self.net_).score_graph(inputs)
        return scores[graph.distinct.inverse]

    def save(self, folder: Path) -> None:
        if self.net_ is None:
            raise RuntimeError("fit the ranker before it is saved")
        tensors = {f"net.{name}": value for name, value in self.net_.state_dict().items()}
        for name, scaler in self.scalers_.items():
            for part, values in dataclasses.asdict(scaler).items():
                tensors[f"scaler.{name}.{part}"] = torch.from_numpy(values)
        content = save({name: value.contiguous() for name, value in tensors.items()})
        (folder / WEIGHTS).write_bytes(content)

    def load(self, folder: Path) -> Self:
        tensors = load_file(folder / WEIGHTS)
        self.scalers_ = {
            name: Scaler(
                **{
                    field.name: tensors[f"scaler.{name}.{field.name}"].numpy()
                    for field in dataclasses.fields(Scaler)
                }
            )
            for name in self.scaled_tables
        }
        prefix = "net."
        state = {
            name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)
        }
        self._check_shapes(state, folder / WEIGHTS)
        self.net_ = self.make_net().to(self.device)
        self.net_.load_state_dict(state)
        return self

    def _check_shapes(self, state: dict[str, Tensor], path: Path) -> None:
        """Raise InputError if the shapes of weights in a file do not fit the net. No memory is
        allocated for the net, which may be too large."""
        with torch.device("meta"):
            expected = self.make_net().state_dict()
        wanted = {name: tuple(tensor.shape) for name, tensor in expected.items()}
        found = {name: tuple(tensor.shape) for name, tensor in state.items()}
        if found != wanted:
            name, shape = min(found.items() ^ wanted.items())
            raise InputError(
                f"{path}: expected the weights of the net that its settings describe, but "
                f"{name} {shape} is not in both. Train the model again."
            )

    def _example(self, graph: Graph, max_configs: int | None) -> Example[Inputs]:
        rows = self.choose(graph, max_configs)
        return Example(self._encoded(rows.graph), rows.runtimes, graph.key)

    def _encoded(self, graph: Graph) -> Inputs:
        """Return the net's inputs for a graph; `self.encoding` says how to encode the numeric
        features: as logarithms, or as plain numbers."""
        check_no_options(graph)
        inputs = self.prepare(graph)
        if self.encoding == "logarithms":
            return inputs
        plain = expand(inputs.numeric.numpy().astype(np.float64)).astype(np.float32)
        return dataclasses.replace(inputs, numeric=torch.from_numpy(plain))

    def _scaled(self, example: Example[Inputs]) -> Example[Inputs]:
        return dataclasses.replace(example, inputs=self._scale(example.inputs))

    def _scale(self, inputs: Inputs) -> Inputs:
        """Return the inputs with their tables standardised, on the ranker's device."""
        scaled = {
            name: torch.from_numpy(scaler(getattr(inputs, name).numpy()))
            for name, scaler in self.scalers_.items()
        }
        moved: Inputs = move_inputs(dataclasses.replace(inputs, **scaled), self.device)
        return moved
