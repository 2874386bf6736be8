"""The signatures of a SavedModel as functions that do not compare shapes.

Not here: names, types and shapes of inputs (`servable.py`), batching (`batching.py`). TF Serving
feeds any shape, so a model that declares `[-1, 1]` answers `[3]` if its operations can. But some
kernels end the process when they get a rank that they were not compiled for, such as a fused
convolution. Hence other shapes are for functions of elementwise operations only.
"""

import os
from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2, saved_model_pb2

from jem_tf.saved_model import layout
from jem_tf.saved_model.loading import load_saved_model
from jem_tf.server import model_files

Function: TypeAlias = "GraphFunction | SessionFunction"
_PLUMBING = {"Placeholder", "Const", "Identity", "NoOp", "Cast"}
_PLUMBING |= {"PartitionedCall", "StatefulPartitionedCall"}  # their functions are looked at, too
_VARIABLES = {"VarHandleOp", "ReadVariableOp", "VariableV2"}
_ARITHMETIC = {"Abs", "Add", "AddV2", "Sub", "Mul", "Div", "RealDiv", "DivNoNan", "Neg", "Pow"}
_ARITHMETIC |= {"Square", "Sqrt", "Exp", "Log", "Floor", "Round", "Sign", "Maximum", "Minimum"}
_COMPARISONS = {"Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual"}
ELEMENTWISE = _PLUMBING | _VARIABLES | _ARITHMETIC | _COMPARISONS


def read_meta_graph(path: str | os.PathLike[str], tags: Collection[str]) -> Any:
    """Return the `MetaGraphDef` with these tags; raise `ValueError` if there is none."""
    file = model_files.join(path, layout.SAVED_MODEL)
    for graph in saved_model_pb2.SavedModel.FromString(model_files.read_bytes(file)).meta_graphs:
        if set(graph.meta_info_def.tags) == set(tags):
            return graph
    raise ValueError(f"{file!r} has no graph with tags {sorted(tags)}")


def load_functions(
    path: str | os.PathLike[str], meta_graph: Any
) -> tuple[dict[str, Function], Any]:
    """Return the signatures of the SavedModel at `path` by name, and the object that holds them."""
    tags = list(meta_graph.meta_info_def.tags)
    if meta_graph.HasField("object_graph_def"):
        loaded = load_saved_model(path, tags)
        return {name: GraphFunction(f) for name, f in loaded.signatures.items()}, loaded
    # A SavedModel of TensorFlow 1: its reference variables exist in sessions only.
    session = tf.compat.v1.Session(graph=tf.Graph())
    with session.graph.as_default():
        tf.compat.v1.saved_model.load(session, tags, str(path))
    definitions = meta_graph.signature_def.items()
    functions: dict[str, Function] = {k: SessionFunction(session, v) for k, v in definitions}
    return functions, session


class GraphFunction:
    """A function of TensorFlow 2 by the names of its inputs and outputs.

    ```python
    GraphFunction(loaded.signatures["logits"])(inputs=x)["logits"]
    ```

    Args:
        concrete: a `ConcreteFunction`.
        inputs: names of its inputs in order; by default those of a signature, which are sorted.
        outputs: names of its outputs in order.
    """

    def __init__(self, concrete: Any, inputs: Sequence[str] = (), outputs: Sequence[str] = ()):
        self.concrete = concrete
        self._inputs = inputs or sorted(concrete.structured_input_signature[1])
        self._outputs = outputs or sorted(concrete.structured_outputs)
        self._types = [output.dtype for output in concrete.outputs]
        graph = concrete.graph.as_graph_def()
        nodes = [*graph.node, *(n for f in graph.library.function for n in f.node_def)]
        self.is_elementwise = {node.op for node in nodes} <= ELEMENTWISE

    def __call__(self, **tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        arguments = [*(tensors[key] for key in self._inputs), *self.concrete.captured_inputs]
        results = tf.raw_ops.StatefulPartitionedCall(
            args=arguments, Tout=self._types, f=self.concrete
        )
        return dict(zip(self._outputs, results))


class SessionFunction:
    """A signature of a TensorFlow 1 SavedModel, run in a session as TF Serving does.

    ```python
    SessionFunction(session, signature_defs["serving_default"])(x=np.float32([1, 2, 5]))["y"]
    ```
    """

    def __init__(self, session: tf.compat.v1.Session, definition: Any):
        self._inputs, self._outputs = sorted(definition.inputs), sorted(definition.outputs)
        options = config_pb2.CallableOptions(
            feed=[definition.inputs[key].name for key in self._inputs],
            fetch=[definition.outputs[key].name for key in self._outputs],
        )
        self.is_elementwise = (
            _types_between(session.graph, options.feed, options.fetch) <= ELEMENTWISE
        )
        # The public `make_callable` compares shapes with those of the placeholders.
        self._run = session._make_callable_from_options(options)

    def __call__(self, **tensors: tf.Tensor) -> dict[str, np.ndarray]:
        results = self._run(*(tensors[key].numpy() for key in self._inputs))
        return dict(zip(self._outputs, results))


def _types_between(graph: tf.Graph, feeds: Iterable[str], fetches: Iterable[str]) -> set[str]:
    """Return the types of the operations that run when `feeds` are given for `fetches`."""
    given = {graph.get_tensor_by_name(name).op for name in feeds}
    found: set[tf.Operation] = set()
    waiting = {graph.get_tensor_by_name(name).op for name in fetches} - given
    while waiting:
        operation = waiting.pop()
        found.add(operation)
        parents = {*(t.op for t in operation.inputs), *operation.control_inputs}
        waiting |= parents - found - given
    return {operation.type for operation in found}
