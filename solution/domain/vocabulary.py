"""Define what the numbers in the competition's arrays mean: opcodes, feature columns, layout slots.

Source: the README and featurizers.h of google-research-datasets/tpu_graphs (Phothilimthana et al.,
"TpuGraphs: A Performance Prediction Dataset on Large Tensor Computational Graphs", NeurIPS 2023).
"""

import numpy as np

# Opcode ids start at 1; 0 is an opcode that the extractor did not know.
OPCODE_NAMES = """
unknown abs add add-dependency after-all all-reduce all-to-all atan2 batch-norm-grad
batch-norm-inference batch-norm-training bitcast bitcast-convert broadcast call ceil cholesky clamp
collective-permute count-leading-zeros compare complex concatenate conditional constant convert
convolution copy copy-done copy-start cosine custom-call divide domain dot dynamic-slice
dynamic-update-slice exponential exponential-minus-one fft floor fusion gather get-dimension-size
set-dimension-size get-tuple-element imag infeed iota is-finite log log-plus-one and not or xor map
maximum minimum multiply negate outfeed pad parameter partition-id popcnt power real recv recv-done
reduce reduce-precision reduce-window remainder replica-id reshape reverse rng
rng-get-and-update-state rng-bit-generator round-nearest-afz rsqrt scatter select select-and-scatter
send send-done shift-left shift-right-arithmetic shift-right-logical sign sine slice sort sqrt
subtract tanh trace transpose triangular-solve tuple tuple-select while cbrt all-gather
collective-permute-start collective-permute-done logistic dynamic-reshape all-reduce-start
all-reduce-done reduce-scatter all-gather-start all-gather-done opt-barrier async-start async-update
async-done round-nearest-even stochastic-convert tan
"""
OPCODES = dict(enumerate(OPCODE_NAMES.split()))
OPCODE_IDS = {name: index for index, name in OPCODES.items()}
VIRTUAL = len(OPCODES)  # opcode of a node that replaces several merged nodes
NUM_OPCODES = len(OPCODES) + 1

CONFIGURABLE_OPCODES = ("convolution", "dot", "reshape")

NUM_NODE_FEATURES = 140
NUM_LAYOUT_FEATURES = 18
NUM_TILE_FEATURES = 24
MAX_RANK = 6

# Maximum number of contracted dimensions that are kept for an operand of a dot: they are written
# into the columns of a convolution's feature dimension and four spatial dimensions.
SUMMED = 5

# Columns of the node features.
IS_ROOT = 0
ELEMENT_TYPE = slice(2, 21)  # one-hot, in the order of ELEMENT_BYTES
IS_TUPLE = 18
SHAPE_DIMENSIONS = slice(21, 27)
SHAPE_SUM = 27
SHAPE_PRODUCT = 28
PARAMETER_NUMBER = 30
# the `dimensions` attribute of broadcast, reduce, transpose, concatenate, ...
DIMENSIONS = slice(31, 37)
WINDOW_SIZE = slice(37, 43)
CONVOLUTION_INPUT_BATCH = 93
CONVOLUTION_INPUT_FEATURE = 94
CONVOLUTION_KERNEL_INPUT = 99
CONVOLUTION_KERNEL_OUTPUT = 100
CONVOLUTION_OUTPUT_BATCH = 105
CONVOLUTION_OUTPUT_FEATURE = 106
CONVOLUTION_INPUT_SPATIAL = slice(95, 99)
CONVOLUTION_KERNEL_SPATIAL = slice(101, 105)
CONVOLUTION_DIMENSIONS = slice(93, 107)
# the tensor's layout in the module, minor to major
NODE_LAYOUT = slice(134, 140)
# Columns that hold dimension numbers of a tensor: 0 to 5, or PADDING in an unused slot. In the npz
# files an unused slot is 0; solution.features.preparation replaces it.
PADDING = -1
DIMENSION_NUMBERS = (DIMENSIONS, CONVOLUTION_DIMENSIONS, NODE_LAYOUT)

# Bytes of an element: invalid pred s8 s16 s32 s64 u8 u16 u32 u64 f16 f32 f64 bf16 c64 c128 tuple
# opaque token.
ELEMENT_BYTES = np.array([0, 1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8, 2, 8, 16, 0, 0, 0], np.float32)

# A layout configuration has six slots for each of these tensors, minor to major; -1: not given.
LAYOUT_TENSORS = ("output", "input", "kernel")
LAYOUT_UNSET = -1
# number of values of a slot, -1 ... 5; as a token, a value is shifted to 0 ... 6
NUM_LAYOUT_TOKENS = MAX_RANK + 1

# A tile configuration has three blocks of eight: six sizes, their sum, their product.
TILE_BLOCKS = {"kernel": slice(0, 8), "output": slice(8, 16), "input": slice(16, 24)}

# A TPU's register tile has 8 sublanes and 128 lanes; minor dimensions are padded to it.
SUBLANES, LANES = 8, 128

# Compile options of XLA for a CPU. Files hold indices of choices, so append new ones at the end.
OPTION_CHOICES: dict[str, tuple[str, ...]] = {
    "library_fusions": (
        "default", "none", "dot", "dot_alone", "elementwise", "reduce", "dot_and_reduce",
        "convolution",
    ),
    "products": ("default", "own_loops"),
    "size": ("default", "small"),
    "min_max": ("default", "fast"),
    "tiling_propagation": ("default", "on"),
    "vector_width": ("default", "wide"),
    "unrolling": ("default", "off"),
    "effort": ("default", "less"),
}  # fmt: skip
OPTION_NAMES = tuple(OPTION_CHOICES)
# Compile options of a TPU's compiler: see solution.collecting.tpu.space.
TPU_OPTION_CHOICES: dict[str, tuple[str, ...]] = {
    "tpu_scoped_vmem_kib": (
        "default", "8192", "12288", "24576", "32768", "49152", "65536", "81920", "98304",
    ),
    "tpu_dot_dot_fusion": ("default", "off"),
    "tpu_dot_dot_fusion_duplicated": ("default", "on"),
    "tpu_fusion_cost_model": ("default", "on"),
    "tpu_order_dot_after_layout": ("default", "off"),
    "tpu_dot_strength_reduction": ("default", "off"),
    "tpu_broadcast_priority": ("default", "on"),
}  # fmt: skip
# {target: {compile option: choices}}; a graph has the options of one target (Graph.option_names).
OPTION_SETS: dict[str, dict[str, tuple[str, ...]]] = {
    "cpu": OPTION_CHOICES,
    "tpu": TPU_OPTION_CHOICES,
}
