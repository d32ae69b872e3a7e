"""Compare and time a chosen configuration with the compiler's default, on the device itself.

    python verify.py [FOLDER]

Run it on the machine with the TPU; it needs jax alone. It reads `default.pb`, `chosen.pb`,
`choice.json` and `arguments.npz` in FOLDER (default: the folder of this file), compares the results
of both programs, times them in turn if the results agree, and writes `verdict.json` there.
`fastslow choose --verdict verdict.json` takes that file back. Without a TPU the programs run on the
first device that jax finds.

Each repetition is a new process with several copies of both programs, which run in random order.
A repetition's result is the logarithm of the default's smallest time / the chosen program's
smallest time; the interval is Student's t over the repetitions. On a CPU the process is pinned to
one core and its CPU time counts; on other devices wall time counts.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.extend.backend import get_backend
from jax.extend.mlir import hlo_to_stablehlo
from jaxlib import _jax  # type: ignore[attr-defined]
from scipy import stats

DEFAULT, CHOSEN, CHOICE, ARGUMENTS = "default.pb", "chosen.pb", "choice.json", "arguments.npz"
VERDICT = "verdict.json"
PROGRAMS = ("default", "chosen")
# The constants from ROUNDS to LEAST_GAIN say how programs are timed and judged. Their values are
# those that `fastslow choose` uses on a CPU, in harness.py, timing.py and verdict.py.
ROUNDS, COPIES = 6, 3
PASSES, LEAST_PASSES, PASS_SECONDS = 30, 4, 5.0
VISIT_NANOSECONDS, MIN_RUNS, MAX_RUNS, WARM_UPS = 4_000_000, 2, 20, 2
CONFIDENCE, LEAST_GAIN = 0.95, 1.005
# relative tolerance = max(TOLERANCE, ROUNDINGS * the type's rounding)
TOLERANCE, ROUNDINGS = 1e-3, 16
# if a type's rounding is larger than this, as for 8-bit floats, the rounding is the tolerance
NARROW = 2.0**-6
# A TPU rounds the operands of dots and convolutions to bfloat16, so results differ by more than
# their type's rounding. COARSE is the largest relative rounding error of bfloat16. `shake` changes
# the arguments by this share; the tolerance is then NOISE times the resulting change of the
# default's results, but at most MOST_TOLERANCE.
COARSE, NOISE, MOST_TOLERANCE = 2.0**-8, 2.0, 0.05
IMPLAUSIBLE = 10  # a CPU time this many times below the median of the same runs is a clock error


def main() -> int:
    """Compare and time both programs, print and write the verdict; return the exit status."""
    if sys.argv[1:] in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent
    choice = read_choice(folder)
    with tempfile.TemporaryDirectory(prefix="verify-") as scratch:
        found = call("--compare", folder, scratch)
        rounds = []
        if not found["defect"]:
            for number in range(ROUNDS):
                rounds.append(call("--round", folder, scratch, str(number)))
                default, chosen = rounds[-1]["nanoseconds"]
                print(f"repetition {number + 1} of {ROUNDS}: {default:,.0f} and {chosen:,.0f} ns")
    record = {
        "program": choice["program"],
        "choice": choice["choice"],
        "device": found["device"],
        "platform": found["platform"],
        "jax": jax.__version__,
        "clock": found["clock"],
        "defect": found["defect"],
        "nanoseconds": [one["nanoseconds"] for one in rounds],
    }
    if rounds:
        record |= judge(*np.array(record["nanoseconds"]).T)
        words = describe(record)
    else:
        words = f"Do not use the chosen configuration: {found['defect']}."
    print(f"{choice['program']} on {found['device']}: {words}")
    target, devices = choice["target"], choice.get("devices", [])
    if devices and found["device"] not in devices:
        print(
            f"{found['device']} is not {target} ({devices[0]}): this proves nothing about {target}."
        )
    path = folder / VERDICT
    path.write_text(json.dumps({**record, "verdict": words}, indent=2) + "\n", encoding="utf-8")
    print(f"Written: {path}")
    return 1 if found["defect"] else 0


def read_choice(folder: Path) -> dict[str, Any]:
    """Return the content of choice.json; exit if a file is missing or its checksum is wrong."""
    for name in (DEFAULT, CHOSEN, CHOICE):
        if not (folder / name).is_file():
            sys.exit(f"{folder / name}: there is no such file. Copy the whole folder of `choose`.")
    choice: dict[str, Any] = json.loads((folder / CHOICE).read_text(encoding="utf-8"))
    for name, expected in choice["checksums"].items():
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != expected:
            sys.exit(f"{folder / name}: is another file than {CHOICE} says. Copy the folder again.")
    return choice


def call(*words: object) -> dict[str, Any]:
    """Run this file with the arguments `words` in a new process, and return the JSON reply that it
    writes. Exit if it fails."""
    with tempfile.TemporaryDirectory(prefix="verify-") as folder:
        path = Path(folder) / "reply.json"
        command = [sys.executable, __file__, *map(str, words), str(path)]
        if subprocess.run(command, check=False).returncode:
            sys.exit(f"verify.py {words[0]} failed: see the message above.")
        reply: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return reply


def judge(default: np.ndarray, chosen: np.ndarray) -> dict[str, float]:
    """Return the speed-up, default time / chosen time, from times (repetitions,) of both programs:
    its geometric mean "gain", and its confidence interval from "low" to "high"."""
    gains = np.log(default) - np.log(chosen)
    error = gains.std(ddof=1) / np.sqrt(len(gains))
    reach = stats.t.ppf((1 + CONFIDENCE) / 2, len(gains) - 1) * error
    ends = {"gain": 0.0, "low": -reach, "high": reach}
    return {name: float(np.exp(gains.mean() + end)) for name, end in ends.items()}


def describe(record: dict[str, Any]) -> str:
    """Return the verdict in words."""
    interval = f"[{record['low']:.3f}, {record['high']:.3f}] in {ROUNDS} repetitions"
    if record["low"] > 1 and record["gain"] >= LEAST_GAIN:
        return f"{record['gain']:.3f} times as fast as the compiler's default, {interval}."
    return f"No gain can be shown: {record['gain']:.3f} times as fast, {interval}."


def open_device() -> tuple[Any, str]:
    """Return jax's client and the clock's name, "cpu" or "wall". On a CPU, first restart this
    process on one core."""
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    jax.config.update("jax_enable_compilation_cache", False)
    client = get_backend()
    if client.platform != "cpu":
        return client, "wall"
    if not hasattr(os, "sched_setaffinity"):
        return client, "wall"
    cores = os.sched_getaffinity(0)
    if len(cores) > 1:
        os.sched_setaffinity(0, {max(cores)})
        os.execv(sys.executable, [sys.executable, *sys.argv])
    return client, "cpu"


def load(client: Any, folder: Path, scratch: Path, name: str) -> Any:
    """Return a program's executable: the one stored in `scratch` if any, otherwise compile it."""
    devices = _jax.DeviceList((client.local_devices()[0],))
    kept = scratch / f"{name}.executable"
    if kept.exists():
        return client.deserialize_executable(kept.read_bytes(), devices, None)
    choice = read_choice(folder)
    options = _jax.CompileOptions()
    if name == "chosen":
        options.env_option_overrides = list(choice["compiler_options"].items())
    module = hlo_to_stablehlo((folder / f"{name}.pb").read_bytes())
    try:
        return client.compile_and_load(module, devices, options)
    except jax.errors.JaxRuntimeError as error:
        if name != "chosen" or not choice["compiler_options"]:
            raise
        sys.exit(
            f"{devices[0].device_kind}: its compiler does not compile the chosen program with the "
            f"options {choice['compiler_options']}, which were chosen for {choice['target']}: "
            f"{error}. Run verify.py on that TPU."
        )


def read_arguments(folder: Path) -> list[np.ndarray]:
    """Return an array per parameter: from arguments.npz, otherwise random (integers: 0 to 7)."""
    path, generator, found = folder / ARGUMENTS, np.random.default_rng(0), []
    given = dict(np.load(path, allow_pickle=False)) if path.exists() else {}
    for number, (shape, name) in enumerate(read_choice(folder)["parameters"]):
        dtype = jax.numpy.dtype(name)
        if str(number) in given:  # types that numpy does not know are stored as bytes
            array = given[str(number)]
            found.append(array if array.dtype == dtype else array.view(dtype))
        elif jax.numpy.issubdtype(dtype, jax.numpy.inexact):
            found.append((0.1 * generator.standard_normal(shape)).astype(dtype))
        else:
            found.append(generator.integers(0, 2 if dtype.kind == "b" else 8, shape).astype(dtype))
    return found


def put(client: Any, arrays: list[np.ndarray]) -> list[Any]:
    """Copy arrays to the device without changing their types."""
    with jax.enable_x64(True):
        return [jax.device_put(array, client.local_devices()[0]) for array in arrays]


def run(executable: Any, arguments: list[Any]) -> list[Any]:
    """Run an executable once, wait for its end, and return its results as device arrays."""
    results = executable.execute_sharded(arguments).disassemble_into_single_device_arrays()
    arrays = [shards[0] for shards in results]
    for array in arrays:
        array.block_until_ready()
    return arrays


def compare(folder: Path, scratch: Path) -> dict[str, Any]:
    """Compile both programs into `scratch` and compare their results. In the returned reply,
    "defect" says why the chosen program must not be used; "" if it may be used."""
    client, clock = open_device()
    given = read_arguments(folder)
    placed = put(client, given)
    loaded = {name: load(client, folder, scratch, name) for name in PROGRAMS}
    first, again, found = (
        [np.asarray(array) for array in run(loaded[name], placed)]
        for name in ("default", "default", "chosen")
    )
    allowed = [find_tolerance(array.dtype) for array in first]
    if client.platform != "cpu":
        shaken = put(client, [shake(array) for array in given])
        others = [np.asarray(array) for array in run(loaded["default"], shaken)]
        allowed = [
            max(tolerance, min(MOST_TOLERANCE, NOISE * find_distance(*pair))) if tolerance else 0.0
            for tolerance, *pair in zip(allowed, others, first, strict=True)
        ]
    if defect := find_deviation(again, first, allowed):
        defect = f"two runs of the default give different results ({defect})"
    # if the reversed results pass the comparison, it cannot detect numbers in a wrong order
    elif not find_deviation([array.ravel()[::-1].reshape(array.shape) for array in first],
                            first, allowed):  # fmt: skip
        defect = "its results cannot show whether it is right: they are constant, or not finite"
    elif defect := find_deviation(found, first, allowed):
        defect = f"its results are wrong ({defect})"
    if not defect:
        for name, executable in loaded.items():
            (scratch / f"{name}.executable").write_bytes(client.serialize_executable(executable))
    device = client.local_devices()[0].device_kind
    return {"defect": defect, "device": device, "platform": client.platform, "clock": clock}


def find_tolerance(dtype: np.dtype) -> float:
    """Return the relative tolerance of a type; 0 if numbers must be equal."""
    if not jax.numpy.issubdtype(dtype, jax.numpy.inexact):
        return 0.0
    rounding = float(jax.numpy.finfo(dtype).eps)
    return rounding if rounding > NARROW else max(TOLERANCE, ROUNDINGS * rounding)


def shake(array: np.ndarray) -> np.ndarray:
    """Return floats, each multiplied by 1 - COARSE, 1 or 1 + COARSE at random; other types as they
    are."""
    if not jax.numpy.issubdtype(array.dtype, jax.numpy.inexact):
        return array
    steps = np.random.default_rng(1).integers(-1, 2, array.shape)
    return np.asarray((widen(array) * (1 + COARSE * steps)).astype(array.dtype))


def widen(array: np.ndarray) -> np.ndarray:
    """Return floats as float64 and complex numbers as complex128; other types as they are."""
    if not jax.numpy.issubdtype(array.dtype, jax.numpy.inexact):
        return array
    is_complex = jax.numpy.issubdtype(array.dtype, jax.numpy.complexfloating)
    return array.astype(np.complex128 if is_complex else np.float64)


def find_sizes(expected: np.ndarray) -> np.ndarray:
    """Return each number's scale, by which the tolerance is multiplied: its absolute value plus the
    root mean square of all finite numbers."""
    sizes = np.abs(expected)
    finite = sizes[np.isfinite(sizes)]
    largest = float(finite.max(initial=0.0))
    typical = largest * float(np.sqrt(np.mean((finite / largest) ** 2))) if largest else 0.0
    return np.asarray(sizes + typical)


def find_distance(found: np.ndarray, expected: np.ndarray) -> float:
    """Return the smallest tolerance with which all finite numbers of two arrays agree."""
    found, expected = widen(found), widen(expected)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        apart = np.abs(found - expected) / find_sizes(expected)
    return float(apart[np.isfinite(apart)].max(initial=0.0))


def find_deviation(
    found: list[np.ndarray], expected: list[np.ndarray], allowed: list[float]
) -> str:
    """Return in words which result differs from the expected one by more than its tolerance in
    `allowed`; "" if none does."""
    if len(found) != len(expected):
        return f"{len(found)} results, expected {len(expected)}"
    for number, (one, other, tolerance) in enumerate(zip(found, expected, allowed, strict=True)):
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"result {number}: {one.dtype} {one.shape}, not {other.dtype} {other.shape}"
        left, right = widen(one), widen(other)
        # equal, or both NaN, or finite and closer than the tolerance allows
        close = (left == right) | (np.isnan(left) & np.isnan(right) if tolerance else False)
        if tolerance:
            with np.errstate(invalid="ignore", over="ignore"):
                near = np.abs(left - right) <= tolerance * find_sizes(right)
            close |= near & np.isfinite(right)
        if count := int(np.count_nonzero(~close)):
            return f"result {number}: {count:,} of {close.size:,} numbers are wrong"
    return ""


def make_round(folder: Path, scratch: Path, seed: int) -> dict[str, Any]:
    """Time copies of both programs in random order; return the smallest nanoseconds of each."""
    client, clock = open_device()
    arguments, generator = put(client, read_arguments(folder)), np.random.default_rng(seed)
    loaded, counts, smallest = {}, {}, {}
    for copy in range(COPIES):
        for name in PROGRAMS:
            key = f"{name} {copy}"
            loaded[key] = load(client, folder, scratch, name)
            once = min(measure(loaded[key], arguments, "wall", 1) for _ in range(WARM_UPS))
            counts[key] = int(np.clip(VISIT_NANOSECONDS // max(1, once), MIN_RUNS, MAX_RUNS))
            smallest[key] = np.inf
    deadline = time.monotonic() + PASS_SECONDS
    for turn in range(PASSES):
        if turn >= LEAST_PASSES and time.monotonic() > deadline:
            break
        for key in generator.permutation(list(loaded)).tolist():
            took = visit(loaded[key], arguments, client.platform, clock, counts[key])
            smallest[key] = min(smallest[key], took)
    found = [min(smallest[key] for key in smallest if key.startswith(name)) for name in PROGRAMS]
    return {"nanoseconds": found}


def visit(executable: Any, arguments: list[Any], platform: str, clock: str, count: int) -> float:
    """Run a program once untimed, then `count` times; return nanoseconds per run. On a CPU that is
    the fastest run. On an accelerator it is the mean of runs that are started together, because
    waiting for each run would cost time."""
    run(executable, arguments)
    if platform != "cpu":
        return measure(executable, arguments, clock, count)
    times = np.array([measure(executable, arguments, clock, 1) for _ in range(count)])
    if not times.any():  # no CPU times are available: use wall times
        return measure(executable, arguments, "wall", count)
    return float(times[(times > 0) & (IMPLAUSIBLE * times >= np.median(times))].min())


def measure(executable: Any, arguments: list[Any], clock: str, count: int) -> float:
    """Return the mean nanoseconds of `count` runs, started one after the other. `clock`: "cpu" for
    CPU time, "wall" for wall time."""
    now = time.process_time_ns if clock == "cpu" else time.perf_counter_ns
    begin = now()
    for _ in range(count - 1):
        executable.execute_sharded(arguments)
    results = run(executable, arguments)
    took = now() - begin
    del results  # free them outside of the timed part
    return took / count


if __name__ == "__main__":
    if len(sys.argv) > 2:
        mode, folder, scratch, *seed, reply = sys.argv[1:]
        if mode == "--compare":
            made = compare(Path(folder), Path(scratch))
        else:
            made = make_round(Path(folder), Path(scratch), int(*seed))
        Path(reply).write_text(json.dumps(made), encoding="utf-8")
    else:
        sys.exit(main())
