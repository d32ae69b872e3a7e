"""The layout net: one per source of programs, for both searches; three seeds averaged.

The random and the default search visit the same programs. A net that learns from both searches
ranks each better than a net that learns from one. It costs no more, because it is trained once for
both.
"""

from solution.domain.collection import LAYOUT, NLP, XLA
from solution.experiments.base import Experiment
from solution.models.layout.layout_gnn import LayoutGnnSettings

EXPERIMENT = Experiment(
    name="layout_gnn_001",
    collections=LAYOUT,
    train_jointly=(XLA, NLP),
    ranker=LayoutGnnSettings(),
    seeds=(0, 1, 2),
)
