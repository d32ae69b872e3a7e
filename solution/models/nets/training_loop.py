"""Train any net: rank sampled configurations of a few graphs at each step.

A net receives a batch of graphs with the same number of sampled configurations each and returns
scores (configs, graphs); the loss compares inside a graph. With early stopping the fit ends with
the weights of the epoch that was best on validation graphs, without it with the last ones.
Lightning Fabric handles device and precision.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from solution.models.nets.devices import make_fabric
from solution.models.nets.fit_state import FitState
from solution.models.nets.ranking_net import Example, Inputs
from solution.models.nets.stepping import Steps
from solution.models.nets.training_settings import TrainingSettings
from solution.models.nets.validation import validate
from solution.system.report import Report


def train(
    net: nn.Module,
    examples: Sequence[Example[Inputs]],
    validation: Sequence[Example[Inputs]],
    settings: TrainingSettings,
    seed: int,
    report: Report,
    checkpoints: Path | None = None,
    fit: str = "",
) -> None:
    """Train `net`, a RankingNet, in place.

    Args:
        validation: graphs for early stopping; without any, all epochs are run.
        checkpoints: a folder for this fit alone, which holds its state while it runs; a stopped fit
            resumes from there and, on a CPU, ends with the same weights.
        fit: the identity of the fit, so that it does not resume another fit's state.
    """
    optimizer = make_optimizer(net, settings)
    state = FitState(net, optimizer, seed, fit)
    if checkpoints is not None:
        state.go_on_from(checkpoints)
        for done, known, measures in state.history:
            note = f"validation {known:.3f}"
            report(done, settings.epochs, note, known, measures=measures, is_recalled=True)
    # Only the computing module is wrapped: the state's net keeps its parameter names.
    fabric, note = make_fabric(), ""
    wrapped, wrapped_optimizer = fabric.setup(net, optimizer)
    steps = Steps(fabric, wrapped, wrapped_optimizer, settings, net)

    def look(share: float) -> None:
        if checkpoints is not None:
            state.save_now_and_then(checkpoints)
        report(state.epoch + share, settings.epochs, note)

    for _ in range(state.epoch, settings.epochs):
        loss, rate = steps.run_epoch(examples, state, look)
        score, measures, note = None, {"loss": loss}, f"loss {loss:.3f}"
        if len(validation):
            found = validate(net, validation, steps.loss, settings.configs_per_graph)
            score, measures = getattr(found, settings.chosen_by), measures | found.measures()
            state.keep_if_best(score, measures)
            note += f", validation {score:.3f}"
        state.epoch += 1
        report(state.epoch, settings.epochs, note, score, loss=loss, rate=rate, measures=measures)
        if settings.patience is not None and state.epochs_since_best >= settings.patience:
            break
        if checkpoints is not None:
            state.save_now_and_then(checkpoints)
    state.take_chosen_weights()


def make_optimizer(net: nn.Module, settings: TrainingSettings) -> torch.optim.Optimizer:
    """Return the optimizer that the settings name."""
    if settings.optimizer == "adam":
        return torch.optim.Adam(net.parameters(), lr=settings.learning_rate, fused=True)
    return torch.optim.AdamW(
        net.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True
    )
