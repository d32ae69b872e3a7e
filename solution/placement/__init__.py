"""Choose device, order and fusion of a program's operations, evaluated by simulation.

GO, "the GO paper" in this package: Zhou et al., "Transferable Graph Optimizers for ML Compilers",
NeurIPS 2020. One policy decides for every node of a computation graph at once on which device it
runs (placement), when (schedule), and into which kernel it is merged (fusion).
"""
