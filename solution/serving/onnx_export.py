"""Export the students of a bundle as ONNX files, for programs without Python.

A student is a small net distilled from an ensemble. Its file computes scores from arrays.
`find_inputs` computes these arrays from a graph, still in Python. The file's scores equal the
student's up to rounding. The layers equal those in solution.models.layout.layout_forward and
solution.models.tile.tile_forward, but GraphLayers writes ONNX operations instead of arrays.

A layout net computes a node only once for all configurations in which it has the same value. Such a
class of (node, configuration) pairs is a colour (solution.models.layout.colour_refinement). The
colours after a round of message passing (its outputs) differ from the colours before (its inputs).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, checker, helper, numpy_helper

from solution.domain.graph import Graph
from solution.models import catalogue
from solution.models.layout import layout_forward
from solution.models.layout.colour_refinement import NUM_SHARES, find_pooling, plan_colours
from solution.models.layout.layout_forward import centre, configure, embed, receive, send
from solution.models.light import read_weights
from solution.models.nets import forward
from solution.models.tile.tile_forward import convolve, count_blocks, describe_kernel, read_out
from solution.serving.bundle import Bundle, naming
from solution.serving.record import Member
from solution.system.errors import InputError
from solution.system.files import make_folder, write_bytes
from solution.system.names import place_below
from solution.system.sealing import read_record

OPSET, IR_VERSION = 18, 9
TYPES = {"float": TensorProto.FLOAT, "int": TensorProto.INT64, "bool": TensorProto.BOOL}


def export(bundle: Bundle, folder: Path) -> list[Path]:
    """Write each student into the folder, named after its experiment and collections; return the
    files' paths. Raises InputError if the bundle has no students, or a net cannot be exported."""
    if not bundle.record.is_light:
        raise InputError(
            f"{bundle.source}: holds no students, which alone are written as ONNX. Pack the run "
            "with --distill."
        )
    make_folder(folder)
    paths = []
    for member in bundle.record.members:
        path = place_below(folder, f"{name_file(member)}.onnx", bundle.source)
        with naming(bundle.source, member, "cannot be written as ONNX"):
            record = _read(bundle, member)
            write = {"layout_net": _write_layout_net, "tile_net": _write_tile_net}[record["kind"]]
            layers, scores = write(record["settings"], *read_weights(bundle.folder / member.folder))
            notes = {"kind": record["kind"], "collections": ",".join(member.collections)}
            content = layers.finish(scores, notes).SerializeToString()
        write_bytes(content, path)
        paths.append(path)
    return paths


def name_file(member: Member) -> str:
    """Return a student's file name without .onnx: its experiment and collections."""
    return "-".join([member.experiment, *member.collections]).replace(":", "-")


def find_inputs(bundle: Bundle, graph: Graph) -> tuple[str, dict[str, np.ndarray]]:
    """Return the name, without .onnx, of the file that ranks the graph, and the file's input
    arrays. The file scores the graph's distinct configurations, see Graph.distinct."""
    (member,) = bundle.choose(graph.collection.name)
    record = _read(bundle, member)
    ((_, model, prepared),) = bundle.prepare(graph)
    find = {"layout_net": _find_layout_inputs, "tile_net": _find_tile_inputs}[record["kind"]]
    return name_file(member), find(prepared, record["settings"])


def _read(bundle: Bundle, member: Member) -> dict[str, Any]:
    """Return the student's record, whose checksum was verified when the bundle was loaded."""
    return read_record(bundle.folder / member.folder / catalogue.RECORD, "a model")


def _write_tile_net(
    settings: Mapping[str, Any], weights: forward.Weights, scalers: forward.Scalers
) -> tuple["GraphLayers", str]:
    """Return the net as an ONNX graph, and the name of its output: scores (configs,)."""
    net = GraphLayers(weights, scalers)
    opcodes = net.take("opcodes", "int", "nodes")
    x = forward.embed_nodes(net, opcodes, net.take("numeric", "float", "nodes", "numbers"))
    sources, targets = net.take("sources", "int", "edges"), net.take("targets", "int", "edges")
    for number in range(count_blocks(settings)):
        x = convolve(net, x, sources, targets, number)
    output, table = net.take("output", "int", 1), net.take("table", "float", "configs", "columns")
    return net, net.apply("Squeeze", read_out(net, x, output, table), net.integers(1))


def _find_tile_inputs(graph: Graph, settings: Mapping[str, Any]) -> dict[str, np.ndarray]:
    arrays = describe_kernel(graph)
    return {
        "opcodes": arrays.opcodes,
        "numeric": arrays.numeric,
        "sources": arrays.edge_index[0],
        "targets": arrays.edge_index[1],
        "output": np.array([arrays.output], np.int64),
        "table": arrays.table,
    }


def _write_layout_net(
    settings: Mapping[str, Any], weights: forward.Weights, scalers: forward.Scalers
) -> tuple["GraphLayers", str]:
    """Return the net as an ONNX graph, and the name of its output: scores (configs,)."""
    rounds = len(settings["rounds"])
    net = GraphLayers(centre(weights, rounds), scalers)
    opcodes = net.take("opcodes", "int", "nodes")
    nodes, first = embed(net, opcodes, net.take("numeric", "float", "nodes", "numbers"))
    pair_nodes = net.take("pair_nodes", "int", "pairs")
    tokens = net.take("pair_tokens", "int", "pairs", 18)
    features = net.take("pair_features", "float", "pairs", "facts")
    pairs = configure(net, nodes, first, pair_nodes, tokens, features)
    configured = net.take("configured", "int", "configured")
    given = net.gather(pairs, net.take("configured_pairs", "int", "configured"))
    x = net.gather(nodes, net.take("colour_nodes", "int", "colours_0"))
    x = net.replace_rows(x, configured, given)
    for number in range(rounds):
        x = _run_round(net, x, number)
    listed = net.take("listed", "bool", "configs")
    # sums[c] = pooled[0] + pooled[1 + c]. Row 0 of `pooled` has the sums over steady nodes (see
    # find_pooling) with their most frequent colours. Row 1 + c has the corrections for
    # configuration c and its sums over other nodes. `count`: number of rows of `pooled`.
    count = net.apply("Add", net.apply("Shape", listed), net.integers(1))
    rows = net.apply("Mul", count, net.integers(NUM_SHARES))
    shape = net.apply("Concat", count, net.integers(-1), axis=0)
    pooled = net.apply("Reshape", _multiply(net, "pooling", x, rows), shape)
    differences = net.apply("Slice", pooled, net.integers(1), count)
    sums = net.add(differences, net.apply("Slice", pooled, *map(net.integers, (0, 1))))
    scores = forward.mlp(net, net.standardise(sums, listed), "readout")
    return net, net.apply("Squeeze", scores, net.integers(1))


def _run_round(net: "GraphLayers", x: str, number: int) -> str:
    """Write a round of message passing. `x`: (colours before the round, inputs). Return the name
    of the result, (colours after the round, outputs)."""
    messages, kept = send(net, x, number)
    parents = net.take(f"parents_{number}", "int", f"colours_{number + 1}")
    sums = _multiply(net, f"round_{number}", messages, net.apply("Shape", parents))
    marked = net.take(f"marked_{number}", "int", f"marked_{number}")
    marks = net.take(f"marks_{number}", "float", f"marked_{number}", "marks")
    return receive(net, sums, marked, marks, net.gather(kept, parents), number)


def _multiply(net: "GraphLayers", name: str, x: str, count: str) -> str:
    """Write the matrix product of a sparse matrix and x; return its name. The matrix has `count`
    rows, and its entries are the inputs NAME_rows, NAME_columns and NAME_values, with `name` for
    NAME."""
    entries = f"{name}_entries"
    rows = net.take(f"{name}_rows", "int", entries)
    columns = net.take(f"{name}_columns", "int", entries)
    values = net.take(f"{name}_values", "float", entries)
    return net.sum_rows(x, rows, columns, count, values)


def _find_layout_inputs(graph: Graph, settings: Mapping[str, Any]) -> dict[str, np.ndarray]:
    arrays = layout_forward.describe_graph(graph, str(settings["pruning"]), int(settings["hops"]))
    structure, every = arrays.structure, np.arange(len(graph.layouts.codes))[:, None]
    plan = plan_colours([structure], every, len(settings["rounds"]))
    found = {
        "opcodes": arrays.opcodes,
        "numeric": arrays.numeric,
        "pair_nodes": structure.configurable[structure.codebook.node],
        "pair_tokens": arrays.pair_tokens.astype(np.int64),
        "pair_features": arrays.pair_features,
        "colour_nodes": plan.nodes,
        "configured": plan.configured,
        "configured_pairs": plan.pairs,
        "listed": arrays.listed,
        **_list_entries("pooling", find_pooling([structure], plan.last)),
    }
    # The pooling matrix has three parts (see find_pooling); the last two have num_rows rows each.
    # Give the third part the row numbers of the second, so that their sums are added.
    num_rows = len(every) * NUM_SHARES
    found["pooling_rows"] -= num_rows * (found["pooling_rows"] >= NUM_SHARES + num_rows)
    for number, (aggregation, marks, parents) in enumerate(plan.rounds):
        found |= _list_entries(f"round_{number}", aggregation)
        found |= {f"marked_{number}": marks.colours, f"marks_{number}": marks.values}
        found |= {f"parents_{number}": parents.astype(np.int64)}
    return found


def _list_entries(name: str, matrix: forward.SparseRows) -> dict[str, np.ndarray]:
    """Return the inputs that `_multiply` reads for a sparse matrix: the row, the column and the
    value of each entry, three arrays (entries,)."""
    rows = np.repeat(np.arange(len(matrix.starts) - 1), np.diff(matrix.starts))
    return {
        f"{name}_rows": rows,
        f"{name}_columns": matrix.columns.astype(np.int64),
        f"{name}_values": matrix.values,
    }


class GraphLayers:
    """A net's layers as ONNX operations: each method adds operations to the ONNX graph and returns
    the name of their output."""

    def __init__(self, weights: forward.Weights, scalers: forward.Scalers) -> None:
        self.weights, self._scalers = weights, scalers
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []

    def take(self, name: str, kind: str, *shape: int | str) -> str:
        """Add an input of kind float, int or bool; strings in its shape name free dimensions."""
        self._inputs.append(helper.make_tensor_value_info(name, TYPES[kind], shape))
        return name

    def constant(self, value: np.ndarray) -> str:
        """Add a constant array, which is stored in the file."""
        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def integers(self, *values: int) -> str:
        """Add a constant list of integers."""
        return self.constant(np.array(values, np.int64))

    def apply(self, operation: str, *inputs: str, **attributes: Any) -> str:
        """Add an ONNX operation and return the name of its result."""
        name = f"{operation}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operation, inputs, [name], **attributes))
        return name

    def weight(self, name: str) -> str:
        return self.constant(self.weights[name])

    def linear(self, x: str, name: str) -> str:
        product = self.apply("MatMul", x, self.constant(self.weights[f"{name}.weight"].T))
        bias = self.weights.get(f"{name}.bias")
        return product if bias is None else self.add(product, self.constant(bias))

    def gelu(self, x: str) -> str:
        scaled = self.apply("Mul", x, self.constant(np.array(0.5**0.5, np.float32)))
        share = self.add(self.apply("Erf", scaled), self.constant(np.array(1, np.float32)))
        half = self.apply("Mul", x, self.constant(np.array(0.5, np.float32)))
        return self.apply("Mul", half, share)

    def layer_norm(self, x: str, name: str) -> str:
        parts = (self.weight(f"{name}.{part}") for part in ("weight", "bias"))
        return self.apply(
            "LayerNormalization", x, *parts, axis=-1, epsilon=float(forward.NORM_EPSILON)
        )

    def scale_rows(self, centred: str, name: str) -> str:
        return self.layer_norm(centred, name)

    def scale(self, x: str, name: str) -> str:
        scaler = self._scalers[name]
        centred = self.subtract(x, self.constant(scaler.mean))
        return self.apply("Mul", centred, self.constant(scaler.scale))

    def add(self, x: str, y: str) -> str:
        return self.apply("Add", x, y)

    def subtract(self, x: str, y: str) -> str:
        return self.apply("Sub", x, y)

    def join(self, *parts: str) -> str:
        return self.apply("Concat", *parts, axis=1)

    def flatten(self, x: str) -> str:
        return self.apply("Reshape", x, self.integers(0, -1))

    def split_rows(self, x: str, width: int) -> str:
        return self.apply("Reshape", x, self.integers(-1, width))

    def gather(self, x: str, rows: str) -> str:
        return self.apply("Gather", x, rows, axis=0)

    def replace_rows(self, x: str, rows: str, values: str) -> str:
        return self.apply("ScatterND", x, self.apply("Unsqueeze", rows, self.integers(1)), values)

    def add_rows(self, x: str, rows: str, values: str) -> str:
        indices = self.apply("Unsqueeze", rows, self.integers(1))
        return self.apply("ScatterND", x, indices, values, reduction="add")

    def mean_of(self, x: str, sources: str, targets: str) -> str:
        count = self.apply("Shape", x, end=1)
        one = self.constant(np.ones((1, 1), np.float32))
        # Index 0 for each edge: sum_rows then adds row 0 of `one`, which is 1, for each edge of a
        # target, so the sums are the targets' numbers of edges.
        zero = self.apply("Mul", sources, self.integers(0))
        number = self.apply("Max", self.sum_rows(one, targets, zero, count), one)
        return self.apply("Div", self.sum_rows(x, targets, sources, count), number)

    def mean_row(self, x: str) -> str:
        return self.apply("ReduceMean", x, self.integers(0))

    def most_row(self, x: str) -> str:
        return self.apply("ReduceMax", x, self.integers(0))

    def repeat(self, row: str, x: str) -> str:
        count = self.apply("Shape", x, end=1)
        return self.apply("Expand", row, self.apply("Concat", count, self.integers(1), axis=0))

    def standardise(self, x: str, listed: str) -> str:
        """Standardise x by the mean and deviation of those rows where `listed` (rows,) is True."""
        axis = self.integers(0)
        chosen = self.apply("Compress", x, listed, axis=0)
        centred = self.apply("Sub", x, self.apply("ReduceMean", chosen, axis))
        square = self.apply("Compress", self.apply("Mul", centred, centred), listed, axis=0)
        variance = self.apply("ReduceMean", square, axis)
        small = self.constant(np.array(forward.DEVIATION_EPSILON))
        deviation = self.apply("Sqrt", self.apply("Add", variance, small))
        return self.apply("Div", centred, deviation)

    def sum_rows(self, x: str, rows: str, columns: str, count: str, values: str = "") -> str:
        """Write sums (count, width): sums[rows[i]] += values[i] (default: 1) * x[columns[i]]."""
        named = self.gather(x, columns)
        if values:
            named = self.apply("Mul", named, self.apply("Unsqueeze", values, self.integers(1)))
        width = self.apply("Shape", x, start=1)
        shape = self.apply("Concat", count, width, axis=0)
        zeros = self.apply(
            "ConstantOfShape", shape, value=numpy_helper.from_array(np.zeros(1, np.float32))
        )
        indices = self.apply("Unsqueeze", rows, self.integers(1))
        indices = self.apply("Expand", indices, self.apply("Shape", named))
        return self.apply("ScatterElements", zeros, indices, named, axis=0, reduction="add")

    def finish(self, scores: str, notes: Mapping[str, str]) -> ModelProto:
        """Return the model whose output is `scores` (configs,); `notes` become its description."""
        self._nodes.append(helper.make_node("Identity", [scores], ["scores"]))
        output = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["configs"])
        graph = helper.make_graph(
            self._nodes, "scores", self._inputs, [output], initializer=self._constants
        )
        model = helper.make_model(
            graph,
            producer_name="fast-or-slow",
            ir_version=IR_VERSION,
            opset_imports=[helper.make_opsetid("", OPSET)],
        )
        helper.set_model_props(model, dict(notes))
        checker.check_model(model, full_check=True)
        return model
