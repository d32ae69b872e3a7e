"""30 of the 140 node features, chosen by hand: a graph of fewer numbers a node may keep more nodes.

The report selects "interpretable operation node features [...] most closely aligned with layout
tensor dimensions and operation runtime", and does not name them. These are ours, by the names that
TpuGraphs gives them.
"""

import numpy as np

from solution.domain import vocabulary


def _numbered(name: str, first: int, count: int) -> dict[str, int]:
    return {f"{name}_{number}": first + number for number in range(count)}


# The column of each among the node features.
CHOSEN = {
    # What a layout orders, and the order in the program.
    **_numbered("shape_dimensions", vocabulary.SHAPE_DIMENSIONS.start, 6),
    **_numbered("layout_minor_to_major", vocabulary.NODE_LAYOUT.start, 6),
    # How much is written; whether it is the result of the computation.
    "shape_dimensions_sum": vocabulary.SHAPE_SUM,
    "shape_dimensions_product": vocabulary.SHAPE_PRODUCT,
    "is_root": vocabulary.IS_ROOT,
    # Which dimensions are reduced, broadcast, transposed or joined: they are walked along.
    **_numbered("dimensions", vocabulary.DIMENSIONS.start, 3),
    # How often a convolution or pooling reads each element.
    **_numbered("window_size", vocabulary.WINDOW_SIZE.start, 2),
    "window_size_product": 44,
    **_numbered("window_stride", 45, 2),
    # Which dimensions a convolution contracts, and so which should be contiguous.
    "convolution_dim_numbers_input_batch_dim": vocabulary.CONVOLUTION_INPUT_BATCH,
    "convolution_dim_numbers_input_feature_dim": vocabulary.CONVOLUTION_INPUT_FEATURE,
    "convolution_dim_numbers_kernel_input_feature_dim": vocabulary.CONVOLUTION_KERNEL_INPUT,
    "convolution_dim_numbers_kernel_output_feature_dim": vocabulary.CONVOLUTION_KERNEL_OUTPUT,
    "convolution_dim_numbers_output_batch_dim": vocabulary.CONVOLUTION_OUTPUT_BATCH,
    "convolution_dim_numbers_output_feature_dim": vocabulary.CONVOLUTION_OUTPUT_FEATURE,
    # In how many parts it multiplies.
    "feature_group_count": 107,
}
COLUMNS = np.sort(list(CHOSEN.values()))
# Those before the layout in the program, which nets are given beside the others.
NUMERIC_COLUMNS = COLUMNS[vocabulary.NODE_LAYOUT.start > COLUMNS]
