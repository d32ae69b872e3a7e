"""Define ranking losses: differentiable functions of scores and runtimes, averaged over graphs.

All take scores (configs, graphs), where lower is predicted to be faster, and runtimes (configs,
graphs). Configurations are compared only with others of the same graph (column).
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional


def pairwise_hinge(scores: Tensor, runtimes: Tensor, margin: float = 1.0) -> Tensor:
    """Return the mean of max(0, margin - (s_i - s_j)) over a graph's pairs with runtime_i >
    runtime_j. Source: Herbrich et al., 2000; most of the competition's best entries used it."""
    # (configs, configs, graphs): True if the first configuration is slower than the second
    slower = runtimes[:, None] > runtimes[None, :]
    violation = torch.relu(margin - (scores[:, None] - scores[None, :]))
    pairs = slower.sum(dim=(0, 1)).clamp(min=1)
    return ((violation * slower).sum(dim=(0, 1)) / pairs).mean()


def list_mle(scores: Tensor, runtimes: Tensor) -> Tensor:
    """Return the negative log-likelihood of the true order, divided by the number of
    configurations, in the Plackett-Luce model: each of the configurations left is the next with
    probability proportional to exp(-score). Source: Xia et al., "Listwise approach to learning to
    rank", ICML 2008."""
    order = torch.argsort(runtimes, dim=0, stable=True)
    # strength of a configuration = - score; sorted by runtime, the fastest first
    strength = -scores.gather(0, order)
    # log of the sum of exp(strength) over this configuration and all slower ones
    remaining = torch.logcumsumexp(strength.flip(0), dim=0).flip(0)
    return (remaining - strength).mean()


def pairwise_logistic(scores: Tensor, runtimes: Tensor) -> Tensor:
    """Return the mean of log(1 + exp(-(s_i - s_j))) over a graph's pairs with runtime_i >
    runtime_j. Source: Burges et al. (RankNet), ICML 2005."""
    slower = runtimes[:, None] > runtimes[None, :]
    doubt = functional.softplus(scores[None, :] - scores[:, None])
    pairs = slower.sum(dim=(0, 1)).clamp(min=1)
    return ((doubt * slower).sum(dim=(0, 1)) / pairs).mean()


def soft_tau(scores: Tensor, runtimes: Tensor) -> Tensor:
    """Return 1 - the mean of tanh(s_i - s_j) sign(r_i - r_j) over pairs with different runtimes r;
    with sign instead of tanh and without ties, 1 - Kendall's tau-a."""
    truth = torch.sign(runtimes[:, None] - runtimes[None, :]).to(scores.dtype)
    agreement = torch.tanh(scores[:, None] - scores[None, :]) * truth
    pairs = truth.abs().sum(dim=(0, 1)).clamp(min=1)
    return 1 - (agreement.sum(dim=(0, 1)) / pairs).mean()


def mean_squared_error(scores: Tensor, runtimes: Tensor) -> Tensor:
    """Return the mean of (s - z)^2. z is the log runtime, standardised in its graph (0 if all
    runtimes are equal), because only the order inside a graph matters."""
    logs = runtimes.log()
    logs = logs - logs.mean(dim=0)
    spread = logs.square().mean(dim=0).sqrt()
    target = logs / spread.where(spread > 1e-9, torch.ones_like(spread))
    return (scores - target.to(scores.dtype)).square().mean()


def runtime_squared_error(scores: Tensor, runtimes: Tensor) -> Tensor:
    """Return the mean of (s - r)^2, the regression loss that published baselines add to a ranking
    loss. r is the runtime divided by its graph's mean, so that slow graphs do not dominate."""
    target = runtimes / runtimes.mean(dim=0)
    return (scores - target.to(scores.dtype)).square().mean()


LOSSES = {
    "pairwise_hinge": pairwise_hinge,
    "pairwise_logistic": pairwise_logistic,
    "list_mle": list_mle,
    "soft_tau": soft_tau,
    "mean_squared_error": mean_squared_error,
    "runtime_squared_error": runtime_squared_error,
}


def blend(loss: str, regression: float) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the loss function LOSSES[loss] + regression * runtime_squared_error."""

    def blended(scores: Tensor, runtimes: Tensor) -> Tensor:
        total = LOSSES[loss](scores, runtimes)
        return total + regression * runtime_squared_error(scores, runtimes) if regression else total

    return blended
