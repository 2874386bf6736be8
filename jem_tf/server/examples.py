"""Classify and Regress: `tf.train.Example`s as inputs, and results of their outputs.

Not here: running the signature (`service.py`).
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from tensorflow_serving.apis import classification_pb2, regression_pb2

from jem_tf.server import limits
from jem_tf.server.errors import RequestError, invalid
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
    """Return the `SignatureDef`; raise `RequestError` unless its one input is `inputs`."""
    definition = servable.signature_defs.get(signature or DEFAULT_SIGNATURE)
    if definition is None:
        raise invalid(f"No signature was found with the name: {signature or DEFAULT_SIGNATURE}")
    if len(definition.inputs) != 1:
        raise invalid("Expected one input Tensor.")
    if "inputs" not in definition.inputs:
        raise _failed("No inputs found in SignatureDef", definition.inputs)
    return definition


def example_inputs(definition: Any, examples: list[bytes]) -> Arrays:
    """Return the inputs of a signature that takes serialised examples."""
    (name,) = definition.inputs
    array = np.empty(len(examples), object)
    array[:] = examples
    return {name: array}


def classification_outputs(definition: Any) -> list[str]:
    """Return the outputs of a signature that Classify needs."""
    if len(definition.outputs) not in (1, 2):
        raise invalid(f"Expected one or two output Tensors, found {len(definition.outputs)}")
    names = {"classes", "scores"} & set(definition.outputs)
    if not names:
        text = 'Expected classification signature outputs to contain at least one of "classes" or '
        raise _failed(f'{text}"scores".', definition.outputs)
    return sorted(names)


def regression_outputs(definition: Any) -> list[str]:
    """Return the output of a signature that Regress needs."""
    if len(definition.outputs) != 1:
        raise invalid("Expected one output Tensor.")
    if "outputs" not in definition.outputs:
        raise _failed("No regression outputs found in SignatureDef", definition.outputs)
    return ["outputs"]


def classification_result(results: Arrays, num_examples: int) -> Any:
    """Return the outputs `classes` and `scores` as a `ClassificationResult`."""
    for name, expected in (("classes", "string"), ("scores", "float32")):
        if name in results:
            _check_type(name, results[name], expected)
            _check_classes(name, results[name], num_examples)
    widths = {array.shape[1] for array in results.values()}
    if len(widths) > 1:
        text = " vs. ".join(str(results[name].shape[1]) for name in ("classes", "scores"))
        raise invalid(f"Tensors class and score should match in dim_size(1). Got {text}")
    message = classification_pb2.ClassificationResult()
    classes, scores = results.get("classes"), results.get("scores")
    for i in range(num_examples):
        row = message.classifications.add()
        for j in range(*widths):
            label = "" if classes is None else _to_text(classes[i][j])
            row.classes.add(label=label, score=0.0 if scores is None else float(scores[i][j]))
    return message


def regression_result(results: Arrays, num_examples: int) -> Any:
    """Return the output `outputs` as a `RegressionResult`."""
    values = results["outputs"]
    if values.ndim != 1 and (values.ndim != 2 or values.shape[1] != 1):
        raise invalid(
            "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but "
            f"got {list(values.shape)}"
        )
    if len(values) != num_examples:
        raise invalid(
            f"Input batch size did not match output batch size: {num_examples} vs. {len(values)}"
        )
    _check_type("output", values, "float32")
    message = regression_pb2.RegressionResult()
    for value in values.reshape(-1):
        message.regressions.add(value=float(value))
    return message


def _check_classes(name: str, array: np.ndarray, num_examples: int) -> None:
    if array.ndim != 2:
        raise invalid(
            f"Expected Tensor shape: [batch_size num_classes] but got {list(array.shape)}"
        )
    if len(array) != num_examples:
        raise invalid(f"Expected {name} output batch size of {num_examples}. Got: {len(array)}")


def _check_type(name: str, array: np.ndarray, expected: str) -> None:
    actual = "string" if array.dtype == object else array.dtype.name
    if actual != expected:
        raise invalid(f"Expected {name} Tensor of {expected}. Got: {actual}")


def _failed(text: str, names: Iterable[str]) -> RequestError:
    return RequestError("FAILED_PRECONDITION", f"{text} It has: {', '.join(sorted(names))}")


def _to_text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
