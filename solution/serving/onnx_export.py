"""Export the students of a bundle as ONNX files, for programs without Python.

A file computes scores from arrays. `find_inputs` computes these arrays from a graph, still in
Python. The file's scores equal the student's up to rounding.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto
from safetensors.numpy import load_file

from solution.domain.graph import Graph
from solution.models import catalogue
from solution.models.layout import inputs as layout_inputs
from solution.models.layout.steps import NUM_SHARES, derive_steps, find_pooling
from solution.models.light import NET, SCALER, WEIGHTS
from solution.models.nets.sparse_rows import SparseRows
from solution.models.tile.tile_forward import NEEDED, describe_kernel
from solution.serving.bundle import Bundle
from solution.serving.checks import naming
from solution.serving.onnx_graph import Writer
from solution.serving.record import Member
from solution.system.errors import InputError
from solution.system.files import make_folder, replace_file
from solution.system.names import place_below
from solution.system.sealing import read_record

Arrays = Mapping[str, np.ndarray]


def export(bundle: Bundle, folder: Path) -> list[Path]:
    """Write every student of the bundle into the folder; each file is named by its collections.

    Raises InputError if the bundle holds no students, or one of a kind that cannot be exported.
    """
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
            content = write_model(bundle, member).SerializeToString()
        with replace_file(path) as temporary:
            temporary.write_bytes(content)
        paths.append(path)
    return paths


def name_file(member: Member) -> str:
    """Return a student's name and its collections, such as distilled_tile-tile-xla."""
    return "-".join([member.experiment, *member.collections]).replace(":", "-")


def find_inputs(bundle: Bundle, graph: Graph) -> tuple[str, dict[str, np.ndarray]]:
    """Return the name of the file that ranks the graph, and its input arrays for the graph.

    The file scores the graph's distinct configurations; `scores[graph.distinct.inverse]` has the
    scores of all.
    """
    (member,) = bundle.choose(graph.collection.name)
    record = _read(bundle, member)
    ((_, model, prepared),) = bundle.prepare(graph)
    find = {"layout_net": _find_layout_inputs, "tile_net": _find_tile_inputs}[record["kind"]]
    return name_file(member), find(prepared, record["settings"])


def write_model(bundle: Bundle, member: Member) -> ModelProto:
    """Return the student as an ONNX model."""
    record = _read(bundle, member)
    write = {"layout_net": _write_layout_net, "tile_net": _write_tile_net}[record["kind"]]
    tensors = load_file(bundle.folder / member.folder / WEIGHTS)
    weights = {name.removeprefix(NET): tensors[name] for name in tensors if name.startswith(NET)}
    writer = Writer(weights)

    def scale(x: str, name: str) -> str:
        mean, own = (tensors[f"{SCALER}{name}.{part}"] for part in ("mean", "scale"))
        return writer.scale(x, mean, own)

    scores = write(writer, record["settings"], scale)
    notes = {"kind": record["kind"], "collections": ",".join(member.collections)}
    return writer.finish(scores, notes)


def _read(bundle: Bundle, member: Member) -> dict[str, Any]:
    """Return the student's record, whose checksum was verified when the bundle was loaded."""
    return read_record(bundle.folder / member.folder / catalogue.RECORD, "a model")


def _write_tile_net(
    net: Writer, settings: Mapping[str, Any], scale: Callable[[str, str], str]
) -> str:
    """Write the same net as solution.models.tile.tile_forward computes."""
    other = {name: settings[name] for name in NEEDED if settings[name] != NEEDED[name]}
    if other:
        raise InputError(f"a tile net has the settings {other}, expected {NEEDED}.")
    x = _embed(net, scale)
    sources, targets = net.take("sources", "int", "edges"), net.take("targets", "int", "edges")
    for number in range(int(settings["blocks"])):
        x = _convolve_both_ways(net, x, sources, targets, f"blocks.{number}")
    output = net.take("output", "int", 1)
    first = net.integers(0)
    parts = [
        net.apply("ReduceMean", x, first),
        net.apply("ReduceMax", x, first),
        net.gather(x, output),
    ]
    kernel = net.linear(net.apply("Concat", *parts, axis=1), "kernel")
    table = net.take("table", "float", "configs", "columns")
    configs = net.mlp(scale(table, "table"), "config")
    count = net.apply("Shape", table, end=1)
    shape = net.apply("Concat", count, net.integers(1), axis=0)
    joined = net.apply("Concat", configs, net.apply("Expand", kernel, shape), axis=1)
    joined = net.gelu(net.linear(joined, "joint.0"))
    return net.apply("Squeeze", net.mlp(joined, "joint.3"), net.integers(1))


def _embed(net: Writer, scale: Callable[[str, str], str]) -> str:
    """Return the name of the node embeddings (nodes, width), without configurations."""
    opcodes = net.take("opcodes", "int", "nodes")
    numeric = net.take("numeric", "float", "nodes", "numbers")
    named = net.gather(net.constant(net.weights["opcode.weight"]), opcodes)
    return net.mlp(net.apply("Concat", named, scale(numeric, "numeric"), axis=1), "node")


def _convolve_both_ways(net: Writer, x: str, sources: str, targets: str, name: str) -> str:
    """Write a BothWaysBlock: separate messages from operands and from consumers."""
    messages = net.linear(x, f"{name}.from_operands.lin_r")
    count = net.apply("Shape", x, end=1)
    one = net.constant(np.ones((1, 1), np.float32))
    for side, ends in (("operands", (sources, targets)), ("consumers", (targets, sources))):
        sums = net.sum_rows(x, ends[1], ends[0], count)
        zero = net.apply("Mul", ends[0], net.integers(0))  # every edge has weight 1
        number = net.apply("Max", net.sum_rows(one, ends[1], zero, count), one)
        mean = net.apply("Div", sums, number)
        messages = net.apply("Add", messages, net.linear(mean, f"{name}.from_{side}.lin_l"))
    return net.apply("Add", x, net.gelu(net.layer_norm(messages, f"{name}.norm")))


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
    net: Writer, settings: Mapping[str, Any], scale: Callable[[str, str], str]
) -> str:
    """Write the net of solution.models.layout.layout_forward, for all configurations at once."""
    nodes = _embed(net, scale)
    tokens = net.take("pair_tokens", "int", "pairs", "slots")
    named = net.gather(net.constant(net.weights["token.weight"]), tokens)
    flat = net.apply("Reshape", named, net.constant(np.array([0, -1], np.int64)))
    features = scale(net.take("pair_features", "float", "pairs", "facts"), "pair_features")
    layouts = net.linear(net.apply("Concat", flat, features, axis=1), "pair.layout")
    node = net.take("colour_nodes", "int", "colours_0")
    configured = net.take("configured", "int", "configured")
    pairs = net.take("configured_pairs", "int", "configured")
    first = net.gather(net.linear(nodes, "pair.node"), net.gather(node, configured))
    hidden = net.gelu(net.apply("Add", first, net.gather(layouts, pairs)))
    place = net.apply("Unsqueeze", configured, net.integers(1))
    added = net.linear(hidden, "pair.out")
    x = net.apply("ScatterND", net.gather(nodes, node), place, added, reduction="add")
    for number in range(len(settings["rounds"])):
        x = _convolve_colours(net, x, number)
    listed = net.take("listed", "bool", "configs")
    # Sums of the list's usual states, then each configuration's differences from them.
    count = net.apply("Add", net.apply("Shape", listed), net.integers(1))
    rows = net.apply("Mul", count, net.integers(NUM_SHARES))
    shape = net.apply("Concat", count, net.integers(-1), axis=0)
    pooled = net.apply("Reshape", _multiply(net, "pooling", x, rows), shape)
    differences = net.apply("Slice", pooled, net.integers(1), count)
    sums = net.apply("Add", differences, net.apply("Slice", pooled, *map(net.integers, (0, 1))))
    compared = net.standardise(sums, listed)
    return net.apply("Squeeze", net.mlp(compared, "readout"), net.integers(1))


def _convolve_colours(net: Writer, x: str, number: int) -> str:
    """Write a ColourBlock: (colours before, inputs) -> (colours after, outputs)."""
    name, after = f"blocks.{number}", f"colours_{number + 1}"
    messages = net.linear(x, f"{name}.weights")
    half = net.weights[f"{name}.norm.weight"].shape[0]
    messages = net.apply("Reshape", messages, net.constant(np.array([-1, half], np.int64)))
    extra = net.take(f"extra_{number}", "float", after, "marks")
    sums = _multiply(net, f"round_{number}", messages, net.apply("Shape", extra, end=1))
    update = net.layer_norm(net.apply("Add", sums, net.linear(extra, f"{name}.extra")),
                            f"{name}.norm")  # fmt: skip
    risen = net.gelu(update)
    both = net.apply("Concat", risen, net.apply("Sub", risen, update), axis=1)
    kept = net.linear(x, f"{name}.skip") if f"{name}.skip.weight" in net.weights else x
    parents = net.take(f"parents_{number}", "int", after)
    return net.apply("Add", both, net.gather(kept, parents))


def _multiply(net: Writer, name: str, x: str, count: str) -> str:
    """Write the product with a sparse matrix of `count` rows whose entries are inputs."""
    entries = f"{name}_entries"
    rows = net.take(f"{name}_rows", "int", entries)
    columns = net.take(f"{name}_columns", "int", entries)
    values = net.take(f"{name}_values", "float", entries)
    return net.sum_rows(x, rows, columns, count, values)


def _find_layout_inputs(graph: Graph, settings: Mapping[str, Any]) -> dict[str, np.ndarray]:
    arrays = layout_inputs.describe_graph(graph, str(settings["pruning"]), int(settings["hops"]))
    every = np.arange(len(graph.layouts.codes))[:, None]
    steps = derive_steps([arrays.structure], every, len(settings["rounds"]))
    found = {
        "opcodes": arrays.opcodes,
        "numeric": arrays.numeric,
        "pair_tokens": arrays.pair_tokens.astype(np.int64),
        "pair_features": arrays.pair_features,
        "colour_nodes": steps.nodes,
        "configured": steps.configured,
        "configured_pairs": steps.pairs,
        "listed": arrays.listed,
        **_list_entries("pooling", find_pooling([arrays.structure], steps.last)),
    }
    # The pooling's third part has the rows of its second part, so it is added up there.
    num_rows = len(every) * NUM_SHARES
    found["pooling_rows"] -= num_rows * (found["pooling_rows"] >= NUM_SHARES + num_rows)
    for number, (aggregation, marks, parents) in enumerate(steps.rounds):
        extra = marks.expand(len(parents))
        found |= _list_entries(f"round_{number}", aggregation)
        found |= {f"extra_{number}": extra, f"parents_{number}": parents.astype(np.int64)}
    return found


def _list_entries(name: str, matrix: SparseRows) -> dict[str, np.ndarray]:
    rows = np.repeat(np.arange(len(matrix.starts) - 1), np.diff(matrix.starts))
    return {
        f"{name}_rows": rows,
        f"{name}_columns": matrix.columns.astype(np.int64),
        f"{name}_values": matrix.values,
    }
