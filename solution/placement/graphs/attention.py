"""Transformer-XL: layers of attention over a segment and the cached states of the previous one."""

from solution.placement.graphs.builder import ProgramBuilder
from solution.placement.graphs.cost_graph import CostGraph

WIDTH, HEADS, SEGMENT, MEMORY, INNER = 1024, 16, 192, 192, 4096
BATCH, WORDS = 32, 32_000


def make_transformer_xl(layers: int, batch: int = BATCH) -> CostGraph:
    """Return the graph of a Transformer-XL; a stage is a layer, and the last one includes the
    softmax."""
    program = ProgramBuilder()
    table = program.parameter(WORDS, WIDTH)
    tensor = program.add("gather", (batch, SEGMENT, WIDTH), (table, program.data(batch, SEGMENT)))
    positions = program.data(SEGMENT + MEMORY, WIDTH)
    for layer in range(layers):
        program.stage = layer
        tensor = _attend(program, tensor, positions, batch)
        inner = program.dense(program.dense(tensor, INNER, "maximum"), WIDTH)
        tensor = program.normalise(program.apply("add", tensor, inner))
    program.train([program.cross_entropy(program.dense(tensor, WORDS))])
    return program.finish(f"transformer-xl-{layers}")


def _attend(program: ProgramBuilder, tensor: int, positions: int, batch: int) -> int:
    both = SEGMENT + MEMORY
    memory = program.data(batch, MEMORY, WIDTH)
    context = program.add("concatenate", (batch, both, WIDTH), (memory, tensor))
    query, key, value = (program.dense(read, WIDTH) for read in (tensor, context, context))
    place = program.dot(positions, program.parameter(WIDTH, WIDTH))
    scores, product = (batch, HEADS, SEGMENT, both), 2.0 * batch * SEGMENT * both * WIDTH
    by_content, by_place = (program.apply("add", query, program.parameter(WIDTH)) for _ in range(2))
    content = program.add("dot", scores, (by_content, key), product)
    shifted = program.add(
        "slice", scores, (program.add("dot", scores, (by_place, place), product),)
    )
    energy = program.apply("multiply", program.apply("add", content, shifted), program.data(1))
    weights = program.softmax(energy)
    mixed = program.add("dot", (batch, SEGMENT, WIDTH), (weights, value), product)
    joined = program.dot(mixed, program.parameter(WIDTH, WIDTH))
    return program.normalise(program.apply("add", tensor, joined))
