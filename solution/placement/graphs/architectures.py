"""Programs of the families that GO is trained and tested on, made with ProgramBuilder.

Transformer-XL attends to a segment and the cached states of the previous one. Inception-v3,
AmoebaNet and WaveNet are convolutional. RNNLM, a language model, and GNMT, a translator, are
recurrent and unrolled in time. A stage is a layer or a cell, by which a program may be divided.

Sources: Szegedy et al., "Rethinking the Inception Architecture for Computer Vision" (2015); Real et
al., "Regularized Evolution for Image Classifier Architecture Search" (2018); van den Oord et al.,
"WaveNet" (2016). Sizes that they do not give were chosen here; the GO paper gives only families,
layers and devices.
"""

import math

from solution.placement.graphs.builder import ProgramBuilder
from solution.placement.graphs.cost_graph import CostGraph

# Transformer-XL: width, heads, tokens of a segment and of the cached states, inner width
WIDTH, HEADS, SEGMENT, MEMORY, INNER = 1024, 16, 192, 192, 4096
BATCH, WORDS = 32, 32_000
AMOEBA_BATCH, WAVE_BATCH, WAVE_LENGTH, WAVE_CHANNELS = 64, 8, 4096, 128
RNNLM_STEPS, GNMT_STEPS = 40, 50
RNNLM_WIDTH, RNNLM_BATCH, RNNLM_WORDS = 2048, 64, 32_000
GNMT_WIDTH, GNMT_BATCH, GNMT_WORDS = 1024, 128, 32_000


def make_transformer_xl(layers: int, batch: int = BATCH) -> CostGraph:
    """Return the graph of a Transformer-XL with one stage per layer; the softmax is in the last."""
    program = ProgramBuilder()
    table = program.parameter(WORDS, WIDTH)
    tensor = program.add("gather", (batch, SEGMENT, WIDTH), (table, program.data(batch, SEGMENT)))
    positions = program.data(SEGMENT + MEMORY, WIDTH)
    for layer in range(layers):
        program.stage = layer
        tensor = _attend_to_memory(program, tensor, positions, batch)
        inner = program.dense(program.dense(tensor, INNER, "maximum"), WIDTH)
        tensor = program.normalise(program.apply("add", tensor, inner))
    program.train([program.cross_entropy(program.dense(tensor, WORDS))])
    return program.finish(f"transformer-xl-{layers}")


def _attend_to_memory(program: ProgramBuilder, tensor: int, positions: int, batch: int) -> int:
    """Add attention (by content and relative position) of a segment to itself and the cached
    states, a residual connection and a normalisation; return the output."""
    both = SEGMENT + MEMORY
    memory = program.data(batch, MEMORY, WIDTH)
    context = program.add("concatenate", (batch, both, WIDTH), (memory, tensor))
    query, key, value = (program.dense(read, WIDTH) for read in (tensor, context, context))
    position = program.dot(positions, program.parameter(WIDTH, WIDTH))
    scores, product = (batch, HEADS, SEGMENT, both), 2.0 * batch * SEGMENT * both * WIDTH
    by_content, by_position = (
        program.apply("add", query, program.parameter(WIDTH)) for _ in range(2)
    )
    content = program.add("dot", scores, (by_content, key), product)
    shifted = program.add(
        "slice", scores, (program.add("dot", scores, (by_position, position), product),)
    )
    energy = program.apply("multiply", program.apply("add", content, shifted), program.data(1))
    weights = program.softmax(energy)
    mixed = program.add("dot", (batch, SEGMENT, WIDTH), (weights, value), product)
    joined = program.dot(mixed, program.parameter(WIDTH, WIDTH))
    return program.normalise(program.apply("add", tensor, joined))


class ImageBuilder(ProgramBuilder):
    """A ProgramBuilder with operations on images: tensors (batch, height, width, channels)."""

    def convolve(
        self, tensor: int, channels: int, kernel: tuple[int, int] = (1, 1), stride: int = 1
    ) -> int:
        """Add a convolution, a batch normalisation and a rectifier; return the output."""
        batch, height, width, read = self.shapes[tensor]
        shape = (batch, -(-height // stride), -(-width // stride), channels)
        weights = self.parameter(*kernel, read, channels)
        work = 2.0 * math.prod(shape) * math.prod(kernel) * read
        found = self.add("convolution", shape, (tensor, weights), work)
        mean = self.add("reduce", (channels,), (found,), math.prod(shape))
        centred = self.apply("subtract", found, mean)
        scaled = self.apply("multiply", centred, self.parameter(channels))
        return self.apply("maximum", self.apply("add", scaled, self.parameter(channels)))

    def pool(self, tensor: int, stride: int = 1) -> int:
        """Add a 3 x 3 pooling with this stride and return its output."""
        batch, height, width, channels = self.shapes[tensor]
        shape = (batch, -(-height // stride), -(-width // stride), channels)
        return self.add("reduce-window", shape, (tensor,), 9.0 * math.prod(shape))

    def join(self, tensors: list[int]) -> int:
        """Concatenate images along channels; the result has the first image's height and width."""
        *shape, _ = self.shapes[tensors[0]]
        channels = sum(self.shapes[tensor][-1] for tensor in tensors)
        return self.add("concatenate", (*shape, channels), tensors)

    def chain(self, tensor: int, *steps: tuple[int, tuple[int, int]], stride: int = 1) -> int:
        """Add convolutions (channels, kernel) one after the other; only the last has the stride."""
        for channels, kernel in steps[:-1]:
            tensor = self.convolve(tensor, channels, kernel)
        channels, kernel = steps[-1]
        return self.convolve(tensor, channels, kernel, stride)

    def classify(self, tensor: int, classes: int = 1000) -> int:
        """Add a mean over positions, a classifier and the cross-entropy; return the loss."""
        batch, channels = self.shapes[tensor][0], self.shapes[tensor][-1]
        mean = self.add("reduce", (batch, channels), (tensor,), math.prod(self.shapes[tensor]))
        return self.cross_entropy(self.dense(mean, classes))


def make_inception(batch: int) -> CostGraph:
    """Return the graph of Inception-v3 with one stage (CostGraph.stages) per Inception cell."""
    program = ImageBuilder()
    tensor = program.data(batch, 299, 299, 3)
    tensor = program.chain(tensor, (32, (3, 3)), stride=2)
    tensor = program.chain(tensor, (32, (3, 3)), (64, (3, 3)))
    tensor = program.chain(program.pool(tensor, 2), (80, (1, 1)), (192, (3, 3)))
    tensor = program.pool(tensor, 2)
    for pooled in (32, 64, 64):
        program.stage += 1
        tensor = _inception_a(program, tensor, pooled)
    program.stage += 1
    tensor = program.join([
        program.convolve(tensor, 384, (3, 3), 2),
        program.chain(tensor, (64, (1, 1)), (96, (3, 3)), (96, (3, 3)), stride=2),
        program.pool(tensor, 2),
    ])  # fmt: skip
    for inner in (128, 160, 160, 192):
        program.stage += 1
        tensor = _inception_b(program, tensor, inner)
    program.stage += 1
    tensor = program.join([
        program.chain(tensor, (192, (1, 1)), (320, (3, 3)), stride=2),
        program.chain(tensor, (192, (1, 1)), (192, (1, 7)), (192, (7, 1)), (192, (3, 3)), stride=2),
        program.pool(tensor, 2),
    ])  # fmt: skip
    for _ in range(2):
        program.stage += 1
        tensor = _inception_c(program, tensor)
    program.train([program.classify(tensor)])
    return program.finish(f"inception-b{batch}")


def _inception_a(program: ImageBuilder, tensor: int, pooled: int) -> int:
    return program.join([
        program.convolve(tensor, 64),
        program.chain(tensor, (48, (1, 1)), (64, (5, 5))),
        program.chain(tensor, (64, (1, 1)), (96, (3, 3)), (96, (3, 3))),
        program.convolve(program.pool(tensor), pooled),
    ])  # fmt: skip


def _inception_b(program: ImageBuilder, tensor: int, inner: int) -> int:
    across, down = (1, 7), (7, 1)
    return program.join([
        program.convolve(tensor, 192),
        program.chain(tensor, (inner, (1, 1)), (inner, across), (192, down)),
        program.chain(tensor, (inner, (1, 1)), (inner, down), (inner, across), (inner, down),
                      (192, across)),
        program.convolve(program.pool(tensor), 192),
    ])  # fmt: skip


def _inception_c(program: ImageBuilder, tensor: int) -> int:
    short = program.convolve(tensor, 384)
    long = program.chain(tensor, (448, (1, 1)), (384, (3, 3)))
    split = [program.convolve(read, 384, kernel) for read in (short, long)
             for kernel in ((1, 3), (3, 1))]  # fmt: skip
    return program.join(
        [program.convolve(tensor, 320), *split, program.convolve(program.pool(tensor), 192)]
    )


def make_amoebanet(cells: int = 18, first: int = 190, last: int = 448) -> CostGraph:
    """Return the graph of AmoebaNet: three runs of normal cells, separated by reduction cells, with
    one stage per cell. Channels grow evenly from `first` to `last`."""
    program = ImageBuilder()
    before = program.convolve(program.data(AMOEBA_BATCH, 112, 112, 3), first // 4, (3, 3), 2)
    tensor = program.convolve(before, first // 2, (3, 3), 2)
    for cell in range(cells):
        program.stage = cell + 1
        width = (first + (last - first) * cell // max(cells - 1, 1)) // 2
        stride = 2 if cell in (cells // 3, 2 * cells // 3) else 1
        before, tensor = tensor, _amoeba_cell(program, before, tensor, width, stride)
    program.train([program.classify(tensor)])
    return program.finish("amoebanet")


def _amoeba_cell(program: ImageBuilder, before: int, tensor: int, width: int, stride: int) -> int:
    """Add a cell: five sums of two operations each, which read the two previous cells."""
    shrink = -(-program.shapes[before][1] // program.shapes[tensor][1])
    left = program.convolve(before, width, (1, 1), shrink * stride)
    right = program.convolve(tensor, width, (1, 1), stride)
    first = program.apply("add", program.pool(right), _separable(program, left, width, 5))
    second = program.apply("add", left, _separable(program, right, width, 3))
    third = program.apply("add", program.pool(left), second)
    fourth = program.apply("add", _separable(program, first, width, 3), program.pool(right))
    fifth = program.apply("add", program.convolve(right, width, (1, 7)), program.pool(first))
    return program.join([third, fourth, fifth])


def _separable(program: ImageBuilder, tensor: int, width: int, size: int) -> int:
    shape = program.shapes[tensor]
    weights = program.parameter(size, size, 1, shape[-1])
    work = 2.0 * math.prod(shape) * size * size
    return program.convolve(program.add("convolution", shape, (tensor, weights), work), width)


def make_wavenet(stacks: int, layers: int) -> CostGraph:
    """Return the graph of WaveNet with one stage per layer of gated convolutions. The layers'
    outputs are summed and classified."""
    program = ImageBuilder()
    tensor = program.convolve(program.data(WAVE_BATCH, 1, WAVE_LENGTH, 1), WAVE_CHANNELS, (1, 2))
    skipped = None
    for layer in range(stacks * layers):
        program.stage = layer
        paths = [program.convolve(tensor, WAVE_CHANNELS, (1, 2)) for _ in range(2)]
        gated = program.apply("multiply", program.apply("tanh", paths[0]),
                              program.apply("logistic", paths[1]))  # fmt: skip
        skip = program.dense(gated, WAVE_CHANNELS)
        skipped = skip if skipped is None else program.apply("add", skipped, skip)
        if layer + 1 < stacks * layers:  # no residual of the last layer: nothing would read it
            tensor = program.apply("add", tensor, program.dense(gated, WAVE_CHANNELS))
    last = program.dense(program.dense(skipped or tensor, 256, "maximum"), 256)
    program.train([program.cross_entropy(last)])
    return program.finish(f"wavenet-{stacks}x{layers}")


class Lstm:
    """An LSTM layer; its weights are used at every time step. `state` and `output` are the tensors
    of the last step that was added; before the first step, they are input tensors."""

    def __init__(self, program: ProgramBuilder, inputs: int, batch: int, width: int) -> None:
        self.program, self.batch, self.width = program, batch, width
        self.weights = program.parameter(inputs + width, 4 * width)
        self.bias = program.parameter(4 * width)
        self.state, self.output = program.data(batch, width), program.data(batch, width)

    def step(self, tensor: int) -> int:
        """Add a time step that reads `tensor`, and return its output."""
        program, shape = self.program, (self.batch, self.width)
        inputs = program.shapes[tensor][-1]
        joined = program.add("concatenate", (self.batch, inputs + self.width),
                             (tensor, self.output))  # fmt: skip
        gates = program.apply("add", program.dot(joined, self.weights), self.bias)
        cut = [program.add("slice", shape, (gates,)) for _ in range(4)]
        enter, keep, leave = (program.apply("logistic", cut[number]) for number in (0, 1, 3))
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
    """Add one batched softmax for all time steps, and return its loss."""
    batch, width = program.shapes[outputs[0]]
    joined = program.add("concatenate", (len(outputs) * batch, width), outputs)
    return program.cross_entropy(program.dense(joined, words))


def make_rnnlm(layers: int, steps: int = RNNLM_STEPS) -> CostGraph:
    """Return the graph of RNNLM (embedding, LSTM layers, softmax) with one stage per LSTM layer."""
    program = ProgramBuilder()
    tensors = _embed(program, RNNLM_WORDS, RNNLM_BATCH, RNNLM_WIDTH, steps)
    for layer in range(layers):
        program.stage = layer
        cell = Lstm(program, RNNLM_WIDTH, RNNLM_BATCH, RNNLM_WIDTH)
        tensors = [cell.step(tensor) for tensor in tensors]
    program.train([_predict_words(program, tensors, RNNLM_WORDS)])
    return program.finish(f"rnnlm-{layers}")


def _encode(program: ProgramBuilder, layers: int, steps: int) -> list[int]:
    """Add GNMT's encoder (first layer bidirectional, third and later layers residual); return its
    output at each time step."""
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
    """Add the additive attention of a decoder step over all encoder outputs; return its context."""
    shape = (GNMT_BATCH, steps, GNMT_WIDTH)
    mixed = program.add("add", shape, (keys, query))
    energy = program.apply("tanh", mixed)
    scores = program.add("reduce", (GNMT_BATCH, steps), (energy,),
                         float(GNMT_BATCH * steps * GNMT_WIDTH))  # fmt: skip
    weights = program.softmax(scores)
    return program.add("dot", (GNMT_BATCH, GNMT_WIDTH), (weights, keys),
                       2.0 * GNMT_BATCH * steps * GNMT_WIDTH)  # fmt: skip


def make_gnmt(layers: int, steps: int = GNMT_STEPS) -> CostGraph:
    """Return the graph of GNMT: encoder, decoder, softmax; layer n of both is in stage n. All
    layers of the decoder read the attention computed from the decoder's first layer."""
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
