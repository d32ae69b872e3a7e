"""Write a lifted program to a file: HLO text, or a protobuf with its configurable nodes."""

from pathlib import Path

from solution.collecting.lifting.lift import Lifted
from solution.domain.graph import Graph
from solution.programs.compiler import print_hlo
from solution.programs.hlo.messages import MESSAGES
from solution.system.files import replace_file

PROTOBUF = ".pb"


def write_program(lifted: Lifted, graph: Graph, path: Path) -> None:
    """Write the program of a graph atomically: a .pb file as protobuf, any other as text.

    The protobuf is a tuning record without runs, which XLA's tools read like a dumped module.

    Raises:
        InputError: jax, which writes text, is needed but not installed.
        RefusedError: XLA rejects the module.
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
