"""What proximal policy optimisation gains by, of decisions that consist of many.

Sources: Schulman et al., "Proximal Policy Optimization Algorithms" (2017); Zheng et al., "Group
Sequence Policy Optimization" (2025), for the geometric mean.
"""

import torch
from torch import Tensor


def find_gain(change: Tensor, advantages: Tensor, ratio: str, clip: float) -> Tensor:
    """The mean gain that is expected of a policy that has changed.

    Args:
        change: (decisions, parts) of the logarithm of each part's probability.
        advantages: (decisions,) by how much each was better than others.
        ratio: what is clipped: "mean", the geometric mean over a decision's parts; "graph", the
            product over them; "node", each part's.
        clip: a ratio counts from 1 - clip to 1 + clip; 0: however large it is.
    """
    if ratio == "graph":
        change = change.sum(dim=1, keepdim=True)
    elif ratio == "mean":
        change = change.mean(dim=1, keepdim=True)
    ratios, advantages = change.exp(), advantages[:, None]
    gain = ratios * advantages
    if clip > 0:
        gain = torch.minimum(gain, ratios.clamp(1 - clip, 1 + clip) * advantages)
    return gain.mean()
