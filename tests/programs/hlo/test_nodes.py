"""The nodes of a module have the competition's 140 features, opcodes and edges."""

import re

import numpy as np

from solution.domain import vocabulary
from solution.programs.hlo.messages import DESCRIPTION, MESSAGES
from solution.programs.hlo.nodes import read_nodes, wrap
from tests.made import modules


def test_the_compiled_description_is_that_of_the_source() -> None:
    source = re.sub(r"//.*", "", DESCRIPTION.with_suffix(".proto").read_text(encoding="utf-8"))
    written = {
        (message, name, int(number))
        for message, body in re.findall(r"message (\w+) \{(.*?)\n\}", source, re.DOTALL)
        for name, number in re.findall(r"(\w+) = (\d+);", body)
    }
    compiled = {
        (name, field.name, field.number)
        for name, message in MESSAGES.items()
        for field in message.DESCRIPTOR.fields
    }
    assert written == compiled


def test_nodes_and_edges_of_a_module() -> None:
    nodes = read_nodes(modules.make_module())
    names = [vocabulary.OPCODES[opcode] for opcode in nodes.opcodes]
    assert names == ["parameter", "parameter", "add", "parameter", "dot", "reshape", "reduce"]
    # Operands once each; a reduce reads the root of what it calls.
    assert nodes.edges.tolist() == [[2, 0], [2, 1], [4, 3], [5, 4], [6, 2], [6, 5]]
    assert nodes.splits.tolist() == [[0, 7]]
    assert nodes.features[:, vocabulary.IS_ROOT].tolist() == [0, 0, 1, 0, 0, 0, 1]
    assert nodes.features[:, 30].tolist() == [0, 1, 0, 0, 0, 0, 0]  # the parameters' numbers
    product = nodes.features[4]
    assert product[vocabulary.SHAPE_DIMENSIONS].tolist() == [8, 4, 0, 0, 0, 0]
    assert product[[vocabulary.SHAPE_SUM, vocabulary.SHAPE_PRODUCT]].tolist() == [12, 32]
    assert product[vocabulary.NODE_LAYOUT].tolist() == [1, 0, 0, 0, 0, 0]
    assert np.flatnonzero(product[vocabulary.ELEMENT_TYPE]).tolist() == [11]  # f32
    scalar = nodes.features[0]
    assert scalar[[vocabulary.SHAPE_SUM, vocabulary.SHAPE_PRODUCT]].tolist() == [0, 1]


def test_every_field_of_an_instruction_has_its_columns() -> None:
    dimension = MESSAGES["WindowDimension"](
        size=3, stride=2, padding_low=-1, padding_high=1, window_dilation=4, base_dilation=5,
        window_reversal=True,
    )  # fmt: skip
    convolution = MESSAGES["ConvolutionDimensions"](
        input_batch_dimension=1, input_feature_dimension=2, input_spatial_dimensions=[3, 4],
        kernel_input_feature_dimension=5, kernel_output_feature_dimension=6,
        kernel_spatial_dimensions=[7], output_batch_dimension=8, output_feature_dimension=9,
    )  # fmt: skip
    pads = [MESSAGES["PaddingDimension"](edge_padding_low=2, edge_padding_high=3)] * 3
    slices = [MESSAGES["SliceDimension"](start=1, limit=7, stride=2)] * 2
    strange = modules.node(
        1, "convolution", modules.shape(2, 3, kind=16), dimensions=[1, 0],
        window=MESSAGES["Window"](dimensions=[dimension, MESSAGES["WindowDimension"](size=5)]),
        convolution=convolution, feature_group_count=2, batch_group_count=3, slices=slices,
        dynamic_slice_sizes=[4, 5, 6], padding=MESSAGES["Padding"](dimensions=pads), is_stable=True,
    )  # fmt: skip
    (row,) = read_nodes(modules.module(("while_body", 0, [strange]))).features
    assert np.flatnonzero(row[vocabulary.ELEMENT_TYPE]).tolist() == [13]  # bf16 is number 16
    assert row[vocabulary.DIMENSIONS].tolist() == [1, 0, 0, 0, 0, 0]
    sequences = {37: [3, 5, 8, 15], 45: [2, 0, 2, 0], 53: [-1, 0, -1, 0], 61: [1, 0, 1, 0],
                 69: [4, 0, 4, 0], 77: [5, 0, 5, 0]}  # fmt: skip
    for first, (one, two, total, product) in sequences.items():
        assert row[first : first + 8].tolist() == [one, two, 0, 0, 0, 0, total, product]
    assert row[85:93].tolist() == [1, 0, 0, 0, 0, 0, 1, 1]  # reversed: yes, no; counts of both
    assert row[93:107].tolist() == [1, 2, 3, 4, 0, 0, 5, 6, 7, 0, 0, 0, 8, 9]
    assert row[107:109].tolist() == [2, 3]
    assert row[109:121].tolist() == [1, 1, 2, 1, 2, 2, 4, 4, 7, 7, 14, 49]  # start, stride, limit
    assert row[121:125].tolist() == [4, 5, 15, 120]
    assert row[125:134].tolist() == [2, 2, 6, 8, 3, 3, 9, 27, 1]
    assert row[134:].tolist() == [1, 0, 0, 0, 0, 0]


def test_a_product_wraps_around_as_64_bits_do() -> None:
    huge = modules.module(
        ("main", 1, [modules.node(1, "parameter", modules.shape(1 << 40, 3 << 24))])
    )
    product = np.int64(1 << 40)
    with np.errstate(over="ignore"):
        product = product * np.int64(3 << 24)
    assert read_nodes(huge).features[0, vocabulary.SHAPE_PRODUCT] == np.float32(product)
    assert wrap((1 << 63) - 1) == (1 << 63) - 1
    assert wrap(1 << 63) == -(1 << 63)
