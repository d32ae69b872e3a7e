"""Make a function of a StableHLO module its main function, the only one that XLA compiles.

This is the only file that uses MLIR's Python bindings, which come with jaxlib.
"""

import io
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from solution.system.errors import InputError
from solution.system.wording import join_names

MAIN = "main"
FUNCTIONS = ("func.func", "vhlo.func_v1")
MOST_NAMED = 10  # maximum number of functions named in a message


def has_declaration(content: str | bytes) -> bool:
    """Return True if a function in the module has no body (XLA's conversion would crash on it);
    False for unreadable text."""
    ir = import_module("jaxlib.mlir.ir")
    with import_module("jax.interpreters.mlir").make_ir_context() as context:
        context.allow_unregistered_dialects = True
        try:
            module = ir.Module.parse(content)
        except Exception:  # the caller converts the text too, and reports what is wrong with it
            return False
        return not all(map(_has_body, _list_functions(module)))


def make_main(content: str | bytes, function: str) -> bytes:
    """Return a module's bytecode with `function` renamed to main ("": the only public function, or
    main), and without functions that it does not call. Raises InputError if `function` is missing,
    not unique or calls a function without body, and MLIR's errors for unreadable text."""
    ir = import_module("jaxlib.mlir.ir")
    with import_module("jax.interpreters.mlir").make_ir_context() as context:
        context.allow_unregistered_dialects = True
        module = _read(ir, content)
        chosen = _choose(list(_list_functions(module)), function)
        for operation in _list_functions(module):
            is_chosen = operation == chosen
            if not is_chosen and _name(operation) == MAIN:
                _rename(ir, module, operation, _find_free(module))
            visibility = "public" if is_chosen else "private"
            operation.attributes["sym_visibility"] = ir.StringAttr.get(visibility)
        _rename(ir, module, chosen, MAIN)
        passes = import_module("jaxlib.mlir.passmanager").PassManager
        # delete functions that nothing calls
        passes.parse("builtin.module(symbol-dce)").run(module.operation)
        called = [
            _name(function) for function in _list_functions(module) if not _has_body(function)
        ]
        if called:
            listed = join_names(called, MOST_NAMED)
            raise InputError(f"it calls functions of which it has no body: {listed}.")
        return _write(module)


def drop_uncalled(module: Any) -> None:
    """Delete, in place, a Module's computations that its entry never calls, directly or not."""
    by_id = {computation.id: computation for computation in module.computations}
    called, waiting = set(), [module.entry_computation_id]
    while waiting:
        number = waiting.pop()
        if number in by_id and number not in called:
            called.add(number)
            for instruction in by_id[number].instructions:
                waiting += instruction.called_computation_ids
    if module.entry_computation_id in called:
        for position in reversed(range(len(module.computations))):
            if module.computations[position].id not in called:
                del module.computations[position]


def _read(ir: Any, content: str | bytes) -> Any:
    """Parse a module; convert VHLO, the serialization format of StableHLO, to StableHLO."""
    module = ir.Module.parse(content)
    if any(operation.name == "vhlo.func_v1" for operation in _list_functions(module)):
        portable = import_module("jax.extend.mlir").deserialize_portable_artifact(_write(module))
        return ir.Module.parse(str(portable))
    return module


def _write(module: Any) -> bytes:
    written = io.BytesIO()
    module.operation.write_bytecode(written)
    return written.getvalue()


def _list_functions(module: Any) -> Iterator[Any]:
    for found in module.body.operations:
        if found.operation.name in FUNCTIONS:
            yield found.operation


def _choose(functions: list[Any], name: str) -> Any:
    functions = [operation for operation in functions if _has_body(operation)]
    names = [_name(operation) for operation in functions]
    public = [operation for operation in functions if _is_public(operation)] or functions
    if name:
        if name not in names:
            raise InputError(
                f"it has no function {name}. It has {join_names(names, MOST_NAMED) or 'none'}."
            )
        return functions[names.index(name)]
    if len(public) > 1 and MAIN in names:  # XLA chooses main, too, if it has a body
        return functions[names.index(MAIN)]
    if len(public) != 1:
        listed = join_names([_name(operation) for operation in public], MOST_NAMED)
        example = _name(public[-1]) if public else "NAME"
        raise InputError(
            f"it has {len(public)} functions, none of which is called {MAIN}: {listed or 'none'}. "
            f"Choose one, as --function {example} does."
        )
    return public[0]


def _name(operation: Any) -> str:
    return str(operation.attributes["sym_name"]).strip('"')


def _is_public(operation: Any) -> bool:
    attributes = operation.attributes
    return not ("sym_visibility" in attributes and "private" in str(attributes["sym_visibility"]))


def _has_body(operation: Any) -> bool:
    """Return True if a function has a body, and False if it is only declared."""
    return len(operation.regions) > 0 and len(operation.regions[0].blocks) > 0


def _find_free(module: Any) -> str:
    """Return an unused name for the earlier main function, which another function replaces."""
    taken = {_name(operation) for operation in _list_functions(module)}
    name = f"{MAIN}_before"
    while name in taken:
        name += "_"
    return name


def _rename(ir: Any, module: Any, operation: Any, name: str) -> None:
    """Rename a function and all references to it in the module, in place."""
    before = ir.FlatSymbolRefAttr.get(_name(operation))
    after = ir.FlatSymbolRefAttr.get(name)
    for found in _walk(module.operation):
        for key in [key for key in found.attributes if found.attributes[key] == before]:
            found.attributes[key] = after
    operation.attributes["sym_name"] = ir.StringAttr.get(name)


def _walk(operation: Any) -> Iterator[Any]:
    """Yield the operation and all operations inside it."""
    waiting = [operation]
    while waiting:
        found = waiting.pop()
        yield found
        blocks = [block for region in found.regions for block in region]
        waiting += [one.operation for block in blocks for one in block.operations]
