"""The layout net: one for each source of programs, which ranks both searches; three seeds averaged.

The random and the default search visit the same programs. A net that learns from both is better in
each than one that learns from one of them, for no more work, since it is trained once for both.
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
