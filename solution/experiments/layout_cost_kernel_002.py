"""The cost kernel under the rules of a TPU's layout assignment; three seeds averaged.

The penalty was chosen among four values on 80 programs with few configurations each, whose runtimes
were estimated for a TPU.
"""

from solution.domain.collection import LAYOUT, NLP, XLA
from solution.experiments.base import Experiment
from solution.models.layout.cost_kernel import CostKernelSettings

EXPERIMENT = Experiment(
    name="layout_cost_kernel_002",
    collections=LAYOUT,
    train_jointly=(XLA, NLP),
    ranker=CostKernelSettings(backend="tpu", penalty=3e-3),
    seeds=(0, 1, 2),
)
