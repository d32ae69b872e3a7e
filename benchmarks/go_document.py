"""The numbers that the document prints in its two tables.

Zhou et al., "Transferable Graph Optimizers for ML Compilers" (NeurIPS 2020). Its column of gains
mixes 1 - GO / baseline with baseline / GO - 1, so its seconds are compared instead.
"""

OOM = "OOM"
_ROWS = {
    "rnnlm-2": (0.173, 0.192, 0.355, 0.191), "rnnlm-4": (0.210, 0.239, 0.503, 0.251),
    "rnnlm-8": (0.320, 0.332, OOM, 0.764), "gnmt-2": (0.301, 0.384, 0.344, 0.327),
    "gnmt-4": (0.350, 0.469, 0.466, 0.432), "gnmt-8": (0.440, 0.562, OOM, 0.693),
    "transformer-xl-2": (0.223, 0.268, 0.37, 0.262), "transformer-xl-4": (0.230, 0.27, OOM, 0.259),
    "transformer-xl-8": (0.350, 0.46, OOM, 0.425), "inception-b32": (0.229, 0.312, OOM, 0.301),
    "inception-b64": (0.423, 0.731, OOM, 0.498), "amoebanet": (0.394, 0.44, 0.426, 0.418),
    "wavenet-2x18": (0.317, 0.376, OOM, 0.354), "wavenet-4x36": (0.659, 0.988, OOM, 0.721),
}  # fmt: skip
PRINTED = {
    name: dict(zip(("go-one", "human", "metis", "hdp"), row, strict=True))
    for name, row in _ROWS.items()
}
# TensorFlow's default, simulated annealing, GO-one; percent over no fusion. For 2, 4, 8 devices the
# document has models with as many layers.
_FUSION = {
    "gnmt-2": (2.82, 3, 3.19), "gnmt-4": (-0.89, 5.34, 12.03), "gnmt-8": (10.47, 10.47, 12.65),
    "rnnlm-4": (1.04, 1.06, 1.23), "rnnlm-8": (-2.39, -2.38, -2.27),
    "transformer-xl-2": (24.27, 25.1, 28.51), "transformer-xl-4": (17.05, 19.32, 19.99),
    "transformer-xl-8": (21.66, 26.25, 31.48),
}  # fmt: skip
FUSION_ROWS = {
    name: dict(zip(("tensorflow", "annealing", "go"), row, strict=True))
    for name, row in _FUSION.items()
}
