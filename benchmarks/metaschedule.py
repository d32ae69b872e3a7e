"""Run TVM's MetaSchedule on one matrix product, for benchmarks.choosing_tvm: needs only TVM.

    python metaschedule.py tune ROWS SUMS COLUMNS FOLDER    until it is killed
    python metaschedule.py best ROWS SUMS COLUMNS FOLDER    prints seconds of the best, timed again

Source: Shao et al., "Tensor program optimization with probabilistic programs", NeurIPS 2022.
"""

import json
import sys

import numpy as np
import tvm
from tvm import te
from tvm.s_tir import meta_schedule

AT_ONCE = 16  # candidates built and timed per batch
ENDLESS = 1 << 20
TIMED = {"number": 20, "repeat": 6, "min_repeat_ms": 20}


def make_module(rows: int, sums: int, columns: int) -> tvm.IRModule:
    """Return the product (rows, sums) x (sums, columns) in float32."""
    left = te.placeholder((rows, sums), name="left")
    right = te.placeholder((sums, columns), name="right")
    inner = te.reduce_axis((0, sums), name="inner")
    product = te.compute(
        (rows, columns),
        lambda i, j: te.sum(left[i, inner] * right[inner, j], axis=inner),
        name="product",
    )
    function = te.create_prim_func([left, right, product])
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


def find_target() -> tvm.target.Target:
    """Return one core of this machine as target."""
    cpu = tvm.get_global_func("target.llvm_get_system_cpu")()
    return tvm.target.Target({"kind": "llvm", "mcpu": cpu, "num-cores": 1})


def tune(module: tvm.IRModule, folder: str) -> None:
    """Search without end; timed candidates go into a database in the folder."""
    meta_schedule.tune_tir(
        module, find_target(), folder, max_trials_global=ENDLESS, num_trials_per_iter=AT_ONCE,
        num_tuning_cores=1,
    )  # fmt: skip


def time_best(module: tvm.IRModule, folder: str, shape: tuple[int, ...]) -> dict[str, float]:
    """Return the number of timed candidates, and seconds of the fastest, timed again; infinite
    if none."""
    database = meta_schedule.database.JSONDatabase(work_dir=folder)
    timed = len(database.get_all_tuning_records())
    if not timed:
        return {"timed": 0, "seconds": float("inf")}
    best = meta_schedule.tir_integration.compile_tir(database, module, find_target())
    compiled = tvm.compile(best.mod, find_target()).jit()
    rows, sums, columns = shape
    random = np.random.default_rng(0)
    sizes = ((rows, sums), (sums, columns), (rows, columns))
    given = [tvm.runtime.tensor(random.standard_normal(s).astype(np.float32)) for s in sizes]
    compiled["main"](*given)
    wanted = given[0].numpy() @ given[1].numpy()
    np.testing.assert_allclose(given[2].numpy(), wanted, rtol=1e-3, atol=1e-3)
    again = compiled.time_evaluator("main", tvm.cpu(), **TIMED)(*given)
    return {"timed": timed, "seconds": float(min(again.results))}


if __name__ == "__main__":
    what, *numbers, folder = sys.argv[1:]
    shape = tuple(map(int, numbers))
    module = make_module(*shape)
    if what == "tune":
        tune(module, folder)
    else:
        print(json.dumps(time_best(module, folder, shape)))
