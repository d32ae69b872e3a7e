"""Write a net as an ONNX graph: operations for the layers of solution.models.nets.forward."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, checker, helper, numpy_helper

from solution.models.nets.forward import DEVIATION_EPSILON, NORM_EPSILON

OPSET, IR_VERSION = 18, 9
TYPES = {"float": TensorProto.FLOAT, "int": TensorProto.INT64, "bool": TensorProto.BOOL}


class Writer:
    """Collect the operations of a graph; every method returns the name of its result."""

    def __init__(self, weights: Mapping[str, np.ndarray]) -> None:
        self.weights = weights
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []

    def take(self, name: str, kind: str, *shape: int | str) -> str:
        """Add an input of the graph: float, int or bool; a word in its shape is a dimension of
        any size."""
        self._inputs.append(helper.make_tensor_value_info(name, TYPES[kind], shape))
        return name

    def constant(self, value: np.ndarray) -> str:
        """Add an array that the file holds."""
        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def integers(self, *values: int) -> str:
        """Add a constant list of integers."""
        return self.constant(np.array(values, np.int64))

    def apply(self, operation: str, *inputs: str, **attributes: Any) -> str:
        """Add an ONNX operation and return the name of its result."""
        name = f"{operation}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operation, inputs, [name], **attributes))
        return name

    def gather(self, x: str, rows: str) -> str:
        """Select rows of x."""
        return self.apply("Gather", x, rows, axis=0)

    def linear(self, x: str, name: str) -> str:
        """Apply a linear layer, (..., inputs) -> (..., outputs), with a bias if it has one."""
        product = self.apply("MatMul", x, self.constant(self.weights[f"{name}.weight"].T))
        bias = self.weights.get(f"{name}.bias")
        return product if bias is None else self.apply("Add", product, self.constant(bias))

    def gelu(self, x: str) -> str:
        """Multiply x by the standard normal distribution function at x."""
        scaled = self.apply("Mul", x, self.constant(np.array(0.5**0.5, np.float32)))
        share = self.apply("Add", self.apply("Erf", scaled), self.constant(np.array(1, np.float32)))
        half = self.apply("Mul", x, self.constant(np.array(0.5, np.float32)))
        return self.apply("Mul", half, share)

    def mlp(self, x: str, name: str) -> str:
        """Apply Linear, GELU, Linear."""
        return self.linear(self.gelu(self.linear(x, f"{name}.0")), f"{name}.2")

    def layer_norm(self, x: str, name: str) -> str:
        """Normalise each row to mean 0 and deviation 1, then multiply by weight and add bias."""
        parts = (self.constant(self.weights[f"{name}.{part}"]) for part in ("weight", "bias"))
        return self.apply("LayerNormalization", x, *parts, axis=-1, epsilon=float(NORM_EPSILON))

    def scale(self, x: str, mean: np.ndarray, scale: np.ndarray) -> str:
        """Subtract `mean` from the columns, then multiply by `scale`."""
        return self.apply("Mul", self.apply("Sub", x, self.constant(mean)), self.constant(scale))

    def standardise(self, x: str, listed: str) -> str:
        """Subtract the mean over the `listed` rows (rows,) bool, and divide by their deviation."""
        axis = self.integers(0)
        own = self.apply("Compress", x, listed, axis=0)
        centred = self.apply("Sub", x, self.apply("ReduceMean", own, axis))
        square = self.apply("Compress", self.apply("Mul", centred, centred), listed, axis=0)
        variance = self.apply("ReduceMean", square, axis)
        small = self.constant(np.array(DEVIATION_EPSILON))
        deviation = self.apply("Sqrt", self.apply("Add", variance, small))
        return self.apply("Div", centred, deviation)

    def sum_rows(self, x: str, rows: str, columns: str, count: str, values: str = "") -> str:
        """Add x[columns] times `values` (entries,) into rows `rows` (entries,): (count, width)
        sums."""
        named = self.gather(x, columns)
        if values:
            named = self.apply("Mul", named, self.apply("Unsqueeze", values, self.integers(1)))
        width = self.apply("Shape", x, start=1)
        shape = self.apply("Concat", count, width, axis=0)
        zeros = self.apply(
            "ConstantOfShape", shape, value=numpy_helper.from_array(np.zeros(1, np.float32))
        )
        place = self.apply("Unsqueeze", rows, self.integers(1))
        place = self.apply("Expand", place, self.apply("Shape", named))
        return self.apply("ScatterElements", zeros, place, named, axis=0, reduction="add")

    def finish(self, scores: str, notes: Mapping[str, str]) -> ModelProto:
        """Return the model whose output is `scores` (configs,); `notes` become its description."""
        self._nodes.append(helper.make_node("Identity", [scores], ["scores"]))
        output = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["configs"])
        graph = helper.make_graph(
            self._nodes, "scores", self._inputs, [output], initializer=self._constants
        )
        model = helper.make_model(
            graph,
            producer_name="fast-or-slow",
            ir_version=IR_VERSION,
            opset_imports=[helper.make_opsetid("", OPSET)],
        )
        helper.set_model_props(model, dict(notes))
        checker.check_model(model, full_check=True)
        return model
