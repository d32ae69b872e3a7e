"""The two recurrent families: a language model (RNNLM) and a translator (GNMT), unrolled in time.

Sizes were chosen here; the document gives only families, layers and devices.
"""

from solution.placement.graphs.builder import ProgramBuilder
from solution.placement.graphs.cost_graph import CostGraph

RNNLM_STEPS, GNMT_STEPS = 40, 50
RNNLM_WIDTH, RNNLM_BATCH, RNNLM_WORDS = 2048, 64, 32_000
GNMT_WIDTH, GNMT_BATCH, GNMT_WORDS = 1024, 128, 32_000


class Lstm:
    """A layer; its weights are made once and used at every time step."""

    def __init__(self, program: ProgramBuilder, inputs: int, batch: int, width: int) -> None:
        self.program, self.batch, self.width = program, batch, width
        self.weights = program.parameter(inputs + width, 4 * width)
        self.bias = program.parameter(4 * width)
        self.state, self.output = program.data(batch, width), program.data(batch, width)

    def step(self, tensor: int) -> int:
        """Add a time step; gates in the order input, forget, cell, output."""
        program, shape = self.program, (self.batch, self.width)
        inputs = program.shapes[tensor][-1]
        joined = program.add("concatenate", (self.batch, inputs + self.width),
                             (tensor, self.output))  # fmt: skip
        gates = program.apply("add", program.dot(joined, self.weights), self.bias)
        cut = [program.add("slice", shape, (gates,)) for _ in range(4)]
        enter, keep, leave = (program.apply("logistic", cut[place]) for place in (0, 1, 3))
        entering = program.apply("multiply", enter, program.apply("tanh", cut[2]))
        kept = program.apply("multiply", self.state, keep)
        self.state = program.apply("add", kept, entering)
        self.output = program.apply("multiply", program.apply("tanh", self.state), leave)
        return self.output


def _embed(program: ProgramBuilder, words: int, batch: int, width: int, steps: int) -> list[int]:
    table, rows = program.parameter(words, width), program.data(steps * batch)
    found = program.add("gather", (steps * batch, width), (table, rows))
    return [program.add("slice", (batch, width), (found,)) for _ in range(steps)]


def _predict_words(program: ProgramBuilder, outputs: list[int], words: int) -> int:
    """Return the loss over all time steps with one batched softmax."""
    batch, width = program.shapes[outputs[0]]
    joined = program.add("concatenate", (len(outputs) * batch, width), outputs)
    return program.cross_entropy(program.dense(joined, words))


def make_rnnlm(layers: int, steps: int = RNNLM_STEPS) -> CostGraph:
    """Return the graph of RNNLM: embedding, LSTM layers, softmax over words; a stage is a layer."""
    program = ProgramBuilder()
    tensors = _embed(program, RNNLM_WORDS, RNNLM_BATCH, RNNLM_WIDTH, steps)
    for layer in range(layers):
        program.stage = layer
        cell = Lstm(program, RNNLM_WIDTH, RNNLM_BATCH, RNNLM_WIDTH)
        tensors = [cell.step(tensor) for tensor in tensors]
    program.train([_predict_words(program, tensors, RNNLM_WORDS)])
    return program.finish(f"rnnlm-{layers}")


def _encode(program: ProgramBuilder, layers: int, steps: int) -> list[int]:
    """Add the encoder: a bidirectional first layer; from the third on, each layer adds its
    input."""
    tensors = _embed(program, GNMT_WORDS, GNMT_BATCH, GNMT_WIDTH, steps)
    for layer in range(layers):
        program.stage = layer
        read = program.shapes[tensors[0]][-1]
        cell = Lstm(program, read, GNMT_BATCH, GNMT_WIDTH)
        outputs = [cell.step(tensor) for tensor in tensors]
        if layer == 0:
            back = Lstm(program, read, GNMT_BATCH, GNMT_WIDTH)
            other = [back.step(tensor) for tensor in reversed(tensors)][::-1]
            shape = (GNMT_BATCH, 2 * GNMT_WIDTH)
            pairs = zip(outputs, other, strict=True)
            outputs = [program.add("concatenate", shape, pair) for pair in pairs]
        elif layer > 1:
            pairs = zip(outputs, tensors, strict=True)
            outputs = [program.apply("add", *pair) for pair in pairs]
        tensors = outputs
    return tensors


def _attend(program: ProgramBuilder, keys: int, query: int, steps: int) -> int:
    """Add a decoder step's additive attention over all encoder outputs."""
    shape = (GNMT_BATCH, steps, GNMT_WIDTH)
    mixed = program.add("add", shape, (keys, query))
    energy = program.apply("tanh", mixed)
    scores = program.add("reduce", (GNMT_BATCH, steps), (energy,),
                         float(GNMT_BATCH * steps * GNMT_WIDTH))  # fmt: skip
    weights = program.softmax(scores)
    return program.add("dot", (GNMT_BATCH, GNMT_WIDTH), (weights, keys),
                       2.0 * GNMT_BATCH * steps * GNMT_WIDTH)  # fmt: skip


def make_gnmt(layers: int, steps: int = GNMT_STEPS) -> CostGraph:
    """Return the graph of GNMT: encoder, decoder, softmax; a stage is a layer.

    The attention is computed from the decoder's first layer and read by all its layers.
    """
    program = ProgramBuilder()
    encoded = _encode(program, layers, steps)
    shape = (GNMT_BATCH, steps, program.shapes[encoded[0]][-1])
    keys = program.dense(program.add("concatenate", shape, encoded), GNMT_WIDTH)
    program.stage = 0
    tensors = _embed(program, GNMT_WORDS, GNMT_BATCH, GNMT_WIDTH, steps)
    contexts: list[int] = []
    for layer in range(layers):
        program.stage = layer
        width = GNMT_WIDTH if layer == 0 else 2 * GNMT_WIDTH
        cell, outputs = Lstm(program, width, GNMT_BATCH, GNMT_WIDTH), []
        for step, tensor in enumerate(tensors):
            if layer > 0:
                joined = (GNMT_BATCH, 2 * GNMT_WIDTH)
                tensor = program.add("concatenate", joined, (tensor, contexts[step]))
            outputs.append(cell.step(tensor))
        if layer == 0:
            contexts = [_attend(program, keys, output, steps) for output in outputs]
        if layer > 1:
            pairs = zip(outputs, tensors, strict=True)
            outputs = [program.apply("add", *pair) for pair in pairs]
        tensors = outputs
    program.train([_predict_words(program, tensors, GNMT_WORDS)])
    return program.finish(f"gnmt-{layers}")
