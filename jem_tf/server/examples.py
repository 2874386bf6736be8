"""Classify and Regress: `tf.train.Example`s as inputs, and results of their outputs.

Not here: running the signature (`service.py`).
"""

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import classification_pb2, regression_pb2

from jem_tf.server import limits
from jem_tf.server.errors import invalid
from jem_tf.server.servable import DEFAULT_SIGNATURE, Arrays, Servable


def serialize_examples(input_proto: Any) -> list[bytes]:
    """Return the examples of an `Input` message, each merged with the context if there is one."""
    kind = input_proto.WhichOneof("kind")
    examples = [] if kind is None else getattr(input_proto, kind).examples
    if not examples:
        raise invalid("Input is empty.")
    context = b""
    if kind == "example_list_with_context":
        context = input_proto.example_list_with_context.context.SerializeToString()
    return add_context(context, [example.SerializeToString() for example in examples])


def add_context(context: bytes, examples: list[bytes]) -> list[bytes]:
    """Return serialised examples, each merged with the serialised `context`."""
    if not context:
        return examples
    limits.reserve(len(context) * len(examples), "The context in every example")
    return [context + example for example in examples]


def example_signature(servable: Servable, signature: str) -> Any:
    """Return the `SignatureDef`; raise `RequestError` unless it takes serialised examples."""
    definition = servable.signature_defs.get(signature or DEFAULT_SIGNATURE)
    if definition is None:
        raise invalid(f"No signature was found with the name: {signature or DEFAULT_SIGNATURE}")
    if len(definition.inputs) != 1:
        raise invalid("Expected one input Tensor.")
    (info,) = definition.inputs.values()
    if tf.as_dtype(info.dtype) != tf.string:
        raise invalid("No inputs of serialised examples found in SignatureDef")
    return definition


def example_inputs(definition: Any, examples: list[bytes]) -> Arrays:
    """Return the inputs of a signature that takes serialised examples."""
    (name,) = definition.inputs
    array = np.empty(len(examples), object)
    array[:] = examples
    return {name: array}


def classification_outputs(definition: Any) -> list[str]:
    """Return the outputs of a signature that Classify needs."""
    names = {"classes", "scores"} & set(definition.outputs)
    if not names:
        raise invalid(
            "Expected classification signature outputs to contain at least one of "
            '"classes" or "scores".'
        )
    return sorted(names)


def classification_result(results: Arrays, num_examples: int) -> Any:
    """Return the outputs `classes` and `scores` as a `ClassificationResult`."""
    for name, array in results.items():
        if array.ndim != 2:
            raise invalid(
                f"Expected Tensor shape: [batch_size num_classes] but got {list(array.shape)}"
            )
        if len(array) != num_examples:
            raise invalid(f"Expected {name} output batch size of {num_examples}. Got: {len(array)}")
    message = classification_pb2.ClassificationResult()
    classes, scores = results.get("classes"), results.get("scores")
    for i in range(num_examples):
        row = message.classifications.add()
        labels = [] if classes is None else classes[i]
        for j in range(len(labels) if scores is None else len(scores[i])):
            label = _to_text(labels[j]) if len(labels) else ""
            score = 0.0 if scores is None else float(scores[i][j])
            row.classes.add(label=label, score=score)
    return message


def regression_result(results: Arrays, num_examples: int) -> Any:
    """Return the output `outputs` as a `RegressionResult`."""
    values = results["outputs"]
    if values.shape not in ((num_examples,), (num_examples, 1)):
        raise invalid(
            "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but "
            f"got {list(values.shape)}"
        )
    message = regression_pb2.RegressionResult()
    for value in values.reshape(-1):
        message.regressions.add(value=float(value))
    return message


def _to_text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
