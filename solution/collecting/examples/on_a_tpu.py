"""Compare a program's default layouts with chosen ones on a real TPU; needs only jax.

    python on_a_tpu.py chosen.pb [choice.json]

`chosen.pb` is the module that `fastslow choose` writes; without its layout constraints it is the
default program. `choice.json`, if given, has compile options for the chosen one. Both are run in
turn with the same random arguments, and the medians are printed. Without a TPU they run on the
first device that jax finds.
"""

import json
import sys
import time
from pathlib import Path

import jax
import numpy as np
from jax._src.interpreters.mlir import make_ir_context
from jax.extend.backend import get_backend
from jax.extend.mlir import hlo_to_stablehlo
from jaxlib import _jax  # type: ignore[attr-defined]
from jaxlib.mlir import ir

FLOATS = {"bf16": "bfloat16", "f16": "float16", "f32": "float32", "f64": "float64"}
# repetitions, and approximate seconds that each program runs in one repetition
ROUNDS, SECONDS = 20, 0.1


def read_programs(path):
    """Return the default and the chosen program as MLIR text, and the types of the arguments. A
    type is a pair: sizes, name of the element type in MLIR."""
    with make_ir_context():
        module = ir.Module.parse(hlo_to_stablehlo(Path(path).read_bytes()))
        (main,) = (f for f in module.body.operations if str(f.attributes["sym_name"]) == '"main"')
        types = [
            (list(t.shape), str(t.element_type)) for t in map(ir.RankedTensorType, inputs(main))
        ]
        chosen = str(module)
        for constraint in list(find_constraints(module.operation)):
            constraint.results[0].replace_all_uses_with(constraint.operands[0])
            constraint.erase()
        return str(module), chosen, types


def inputs(function):
    """Return the types of an MLIR function's arguments."""
    return function.regions[0].blocks[0].arguments.types


def find_constraints(operation):
    """Yield the layout constraints inside an MLIR operation."""
    for region in operation.regions:
        for block in region:
            for inner in block:
                if "call_target_name" in inner.attributes and (
                    str(inner.attributes["call_target_name"]) == '"LayoutConstraint"'
                ):
                    yield inner
                yield from find_constraints(inner.operation)


def make_arguments(types):
    """Return random arrays of these types; integers are small, because they may be indices."""
    generator = np.random.default_rng(0)
    found = []
    for shape, name in types:
        if name in FLOATS:
            numbers = 0.1 * generator.standard_normal(shape)
            found.append(np.asarray(numbers, jax.numpy.dtype(FLOATS[name])))
        else:
            kind = "bool" if name == "i1" else name.replace("i", "int")
            found.append(generator.integers(0, 2 if name == "i1" else 8, shape).astype(kind))
    return found


def compile_program(text, options):
    """Compile MLIR text for the first device, with options {name: value} of XLA."""
    client = get_backend()
    chosen = _jax.CompileOptions()
    chosen.env_option_overrides = list(options.items())
    devices = _jax.DeviceList((client.local_devices()[0],))
    with make_ir_context():
        return client.compile_and_load(ir.Module.parse(text), devices, chosen)


def run(executable, arguments, count):
    """Return the average seconds of `count` runs."""
    begin = time.perf_counter()
    for _ in range(count):
        results = executable.execute_sharded(arguments)
    for shards in results.disassemble_into_single_device_arrays():
        shards[0].block_until_ready()
    return (time.perf_counter() - begin) / count


def main():
    """Time the default and the chosen program, and print the results."""
    default, chosen, types = read_programs(sys.argv[1])
    record = json.loads(Path(sys.argv[2]).read_text()) if len(sys.argv) > 2 else {}
    device = get_backend().local_devices()[0]
    arguments = [jax.device_put(array, device) for array in make_arguments(types)]
    programs = {
        "default": compile_program(default, {}),
        "chosen": compile_program(chosen, record.get("compiler_options", {})),
    }
    once = max(run(program, arguments, 3) for program in programs.values())
    count = max(1, int(SECONDS / once))
    times: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(ROUNDS):
        for name, program in programs.items():
            times[name].append(run(program, arguments, count))
    print(f"{device.device_kind}: {ROUNDS} rounds of {count} runs")
    for name, found in times.items():
        low, middle, high = np.percentile(found, (25, 50, 75)) * 1e6
        print(f"{name}: median {middle:.1f} us, half of the rounds {low:.1f} to {high:.1f}")
    ratios = np.array(times["default"]) / np.array(times["chosen"])
    low, middle, high = np.percentile(ratios, (25, 50, 75))
    print(f"default over chosen: {middle:.3f}, half of the rounds {low:.3f} to {high:.3f}")


if __name__ == "__main__":
    main()
