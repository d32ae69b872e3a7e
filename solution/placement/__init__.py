"""Choose device, order and fusion of a program's operations, evaluated by simulation.

"The GO paper" in this package is Zhou et al., "Transferable Graph Optimizers for ML Compilers",
NeurIPS 2020, which proposes GO: one policy decides for all nodes of a computation graph at once on
which device each runs (placement), when (schedule), and into which kernel it is merged (fusion).
"""
