"""Write a lifted program to a file: text of HLO, or a protobuf with its configurable nodes."""

from pathlib import Path

from solution.collecting.compiler import print_hlo
from solution.collecting.lifting.lift import Lifted
from solution.data.hlo.messages import MESSAGES
from solution.domain.graph import Graph
from solution.system.files import replace_file

PROTOBUF = ".pb"


def write_program(lifted: Lifted, graph: Graph, path: Path) -> None:
    """Write the program of a graph, atomically: a .pb as protobuf, anything else as text.

    The protobuf is a tuning record without runs, which XLA's tools read as a module they dumped.

    Raises:
        InputError: text is wanted, and jax, which writes it, is not installed.
        RefusedError: XLA does not take the module.
    """
    if path.suffix == PROTOBUF:
        record = MESSAGES["TuningRecord"](
            module=lifted.module, config_index_to_node=graph.configurable.tolist()
        )
        data = record.SerializeToString()
    else:
        data = print_hlo(lifted.module.SerializeToString()).encode()
    with replace_file(path) as temporary:
        temporary.write_bytes(data)
