"""Make small XLA modules and tuning records as protobuf messages."""

from pathlib import Path
from typing import Any

import numpy as np

from solution.collecting.tpu.asking import RequestWriter
from solution.programs.hlo.messages import MESSAGES

F32, TUPLE = 11, 13  # of XLA's PrimitiveType


def shape(*dimensions: int, kind: int = F32, order: list[int] | None = None) -> Any:
    """Return a shape; its layout is `order` (minor to major), row-major by default."""
    layout = list(range(len(dimensions)))[::-1] if order is None else order
    return MESSAGES["Shape"](
        element_type=kind, dimensions=dimensions, layout=MESSAGES["Layout"](minor_to_major=layout)
    )


def node(number: int, opcode: str, kind: Any, operands: tuple[int, ...] = (), **fields: Any) -> Any:
    return MESSAGES["Instruction"](
        id=number, opcode=opcode, shape=kind, operand_ids=operands, **fields
    )


def dot(*lists: list[int]) -> Any:
    """Return dot dimensions from four lists: contracting left and right, batch left and right."""
    left, right, left_batch, right_batch = lists
    return MESSAGES["DotDimensions"](
        lhs_contracting_dimensions=left,
        rhs_contracting_dimensions=right,
        lhs_batch_dimensions=left_batch,
        rhs_batch_dimensions=right_batch,
    )


def module(*computations: tuple[str, int, list[Any]], name: str = "program") -> Any:
    """Return a module of computations (name, id of the root, instructions), numbered from 1."""
    return MESSAGES["Module"](
        name=name,
        computations=[
            MESSAGES["Computation"](name=title, id=number, root_id=root, instructions=nodes)
            for number, (title, root, nodes) in enumerate(computations, 1)
        ],
    )


def make_module(name: str = "program") -> Any:
    """Return sum(reshape(x . w)): seven nodes; dot (4) and reshape (5) are configurable."""
    add = [
        node(10, "parameter", shape()),
        node(11, "parameter", shape(), parameter_number=1),
        node(12, "add", shape(), (11, 10)),
    ]
    main = [
        node(20, "parameter", shape(8, 16)),
        node(22, "dot", shape(8, 4), (20, 20), dot=dot([1], [0], [], [])),
        node(23, "reshape", shape(32, order=[0]), (22,)),
        node(24, "reduce", shape(), (23,), dimensions=[0], called_computation_ids=[1]),
    ]
    return module(("add.1", 12, add), ("main", 24, main), name=name)


def layout_run(*nodes: list[list[int]], time: int = 0, **fields: Any) -> Any:
    """Return a run with the layouts of each configurable node's tensors."""
    given = [
        MESSAGES["NodeLayout"](tensors=[MESSAGES["TensorLayout"](dims=dims) for dims in tensors])
        for tensors in nodes
    ]
    layout = MESSAGES["LayoutConfiguration"](layouts=MESSAGES["Layouts"](nodes=given))
    return MESSAGES["Run"](layout=layout, profile=profile(time), **fields)


def tile_run(*output: int, time: int = 0, **fields: Any) -> Any:
    sizes = MESSAGES["TileSizes"](output_bounds=output)
    tile = MESSAGES["TileConfiguration"](sizes=sizes)
    return MESSAGES["Run"](tile=tile, profile=profile(time), **fields)


def profile(time: int) -> Any:
    return MESSAGES["Profile"](compute_time_ns=time)


def record(*runs: Any, module: Any = None, **fields: Any) -> Any:
    return MESSAGES["TuningRecord"](module=module or make_module(), runs=runs, **fields)


def make_layout_record(*, timed: bool = True) -> Any:
    """Return a record with three configurations of make_module's dot and reshape."""
    return record(
        layout_run([[0, 1], [1, 0], [0, 1]], [[0], [1, 0]], time=3000 * timed, is_default=True),
        layout_run([[1, 0]], [[0], [0, 1]], time=2000 * timed),
        layout_run([], [], time=5000 * timed),
        config_index_to_node=[4, 5],
    )


def write(message: Any, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(message.SerializeToString())
    return path


def ask(module: Any, configurable: np.ndarray, layouts: np.ndarray) -> bytes:
    """Return the serialized module that requests a single configuration's layouts."""
    return RequestWriter(module, configurable).write(layouts)
