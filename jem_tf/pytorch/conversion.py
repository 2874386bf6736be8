"""Conversion between checkpoints of the JEM authors' code, or of JEM++, and a `JEM`.

Not here: the file format (`files.py`), and the network (`backbones/wide_resnet.py`), whose layers
have the same names as in the authors' code.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from jem_tf import backbones
from jem_tf.model import JEM
from jem_tf.pytorch import files
from jem_tf.sampling import SGLD
from jem_tf.sampling.replay import ReplayBuffer

DEFAULT_ARCH = "wrn-28-10"
DEFAULT_IMAGE_SIZE = 32  # of checkpoints without a replay buffer
MAX_LISTED_NAMES = 6
TORCH_NAMES = {  # of weights, by their names in Keras
    "kernel": "weight",
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}
# Weights that no classifier uses, and second names of other weights (JEM++).
UNUSED = re.compile(
    r"f\.linear\.|f\.layer_one\.|f\.other_layers\.|energy_output\.|.*\.num_batches_tracked$"
)


class Checkpoint(NamedTuple):
    """The content of a checkpoint file.

    ```python
    checkpoint = read_checkpoint("CIFAR10_MODEL.pt")
    model = build(checkpoint, "wrn-28-10")
    ```
    """

    path: str
    weights: dict[str, np.ndarray]  # by PyTorch's names
    chains: np.ndarray | None  # the replay buffer, [capacity, channels, size, size]
    norm: str | None  # the kind of normalisation


def load(
    path: str | Path,
    arch: str = DEFAULT_ARCH,
    norm: str | None = None,
    classes: int | None = None,
) -> JEM:
    """Load the checkpoint at `path` as a `JEM` with the paper's sampler and its replay buffer.

    ```python
    model = jem_tf.pytorch.load("CIFAR10_MODEL.pt", "wrn-28-10")
    ```

    Args:
        path: a file that `torch.save` wrote.
        arch: "wrn-DEPTH-WIDTH".
        norm: needed for "instance" and "layer", whose weights have the same names; other kinds of
            normalisation are recognised.
        classes: the expected number of classes, if it is known.
    """
    return build(read_checkpoint(path, norm), arch, classes)


def read_checkpoint(path: str | Path, norm: str | None = None) -> Checkpoint:
    """Read the checkpoint at `path`; `ValueError` if it is not of a WideResNet JEM."""
    content = files.read(path)
    state = content.get("model_state_dict", content) if isinstance(content, dict) else None
    if not isinstance(state, dict) or not all(isinstance(key, str) for key in state):
        raise ValueError(f"{str(path)!r} holds a {type(content).__name__}, not named weights.")
    weights = {k.removeprefix("module."): v for k, v in state.items() if isinstance(v, np.ndarray)}
    for name in ("class_output.weight", "f.conv1.weight"):
        if name not in weights:
            raise ValueError(
                f"{str(path)!r} is not of the JEM authors' WideResNet: it has no {name}. "
                f"Received: {_shorten(weights) or 'no weights'}"
            )
    chains = content.get("replay_buffer")
    if not isinstance(chains, np.ndarray) or len(chains) == 0:
        chains = None
    elif chains.ndim != 4 or chains.shape[2] != chains.shape[3]:
        raise ValueError(
            "A replay buffer must be [capacity, channels, size, size]. "
            f"Received: {chains.shape} in {str(path)!r}"
        )
    return Checkpoint(str(path), weights, chains, _detect_norm(weights, norm))


def build(checkpoint: Checkpoint, arch: str = DEFAULT_ARCH, classes: int | None = None) -> JEM:
    """Build a `JEM` from `checkpoint`; `ValueError` if `arch` or `classes` do not match it."""
    path, weights, chains, norm = checkpoint
    num_classes = len(weights["class_output.weight"])
    if classes is not None and num_classes != classes:
        raise ValueError(f"{path!r} must have {classes} classes. Received: {num_classes} classes")
    size = DEFAULT_IMAGE_SIZE if chains is None else chains.shape[-1]
    shape = (size, size, weights["f.conv1.weight"].shape[1])
    backbone = backbones.wide_resnet(shape, num_classes, *parse_arch(arch), norm)
    _check_weights(backbone, checkpoint, arch)
    for name, variable in named_weights(backbone):
        variable.assign(_from_torch(variable, weights[name]))
    for layer in backbone.layers:
        if hasattr(layer, "initialized"):
            layer.initialized.assign(1.0)
    buffer = ReplayBuffer(None if chains is None else len(chains))
    model = JEM(backbone, SGLD(20, step_size=1.0, noise=0.01), buffer, input_noise=0.03)
    model.input_range.adapt(np.stack([-np.ones(shape), np.ones(shape)]))
    if chains is not None:
        rows = np.moveaxis(chains, 1, -1)[np.newaxis].astype(np.float32)
        buffer.assign(chains=rows, age=np.zeros(rows.shape[:2], np.float32))
    return model


def save(model: JEM, path: str | Path) -> None:
    """Write `model`, a JEM of a `wide_resnet`, as a checkpoint that the authors' code loads.

    ```python
    jem_tf.pytorch.save(model, "model.pt")
    ```
    """
    backbone = model.backbone
    layer_names = {layer.name for layer in backbone.layers}
    if not {"conv1", "layer1.0.conv1", "class_output"} <= layer_names:
        raise ValueError(
            "Only a `backbones.wide_resnet` has the layers of the authors' code. "
            f"Received: {backbone.name!r}"
        )
    state: dict[str, np.ndarray] = {}
    for name, variable in named_weights(backbone):
        state[name] = to_torch(variable)
        if name.endswith("running_var"):
            state[name.replace("running_var", "num_batches_tracked")] = np.array(0)
        if name.endswith(".loc"):
            state[name.replace("loc", "initialized")] = np.array(1, np.uint8)
    features = state["class_output.weight"].shape[1]
    for name, rows in {"f.linear": 10, "energy_output": 1}.items():  # loaded, but never used
        state[f"{name}.weight"] = np.zeros((rows, features), np.float32)
        state[f"{name}.bias"] = np.zeros(rows, np.float32)
    content: dict[str, Any] = {"model_state_dict": state}
    chains = model.stored_chains()
    if chains is not None:
        content["replay_buffer"] = np.moveaxis(chains, -1, 1)
    files.write(path, content)


def parse_arch(arch: str) -> tuple[int, int]:
    """Return the depth and the width in `arch`, "wrn-DEPTH-WIDTH"."""
    match = re.fullmatch(r"wrn-(\d+)-(\d+)", arch)
    if match is None:
        raise ValueError(
            f"`arch` must be wrn-DEPTH-WIDTH, such as wrn-28-10. Received: arch={arch!r}"
        )
    return int(match[1]), int(match[2])


def named_weights(backbone: keras.Model) -> Iterator[tuple[str, Any]]:
    """Yield the weights of `backbone` with their names in PyTorch."""
    for layer in backbone.layers:
        prefix = layer.name if layer.name == "class_output" else f"f.{layer.name}"
        for weight in layer.weights:
            if weight.name != "initialized":
                yield f"{prefix}.{TORCH_NAMES.get(weight.name, weight.name)}", weight


def to_torch(weight: Any) -> np.ndarray:
    """Return the value of `weight` with the axes that it has in PyTorch."""
    value = weight.numpy()
    if value.ndim == 4:
        return np.ascontiguousarray(value.transpose(3, 2, 0, 1))
    if weight.name in ("loc", "scale"):
        return value.reshape(1, -1, 1, 1)
    return np.ascontiguousarray(value.T)


def _from_torch(weight: Any, value: np.ndarray) -> tf.Tensor:
    transposed = value.transpose(2, 3, 1, 0) if len(weight.shape) == 4 else value.T
    return tf.reshape(tf.cast(np.ascontiguousarray(transposed), tf.float32), weight.shape)


def _detect_norm(weights: dict[str, np.ndarray], norm: str | None) -> str | None:
    """Return the kind of normalisation by the names of its weights, or `norm` if both agree."""
    kinds = {
        "f.bn1.running_mean": "batch",
        "f.bn1.loc": "act",
        "f.bn1.weight": norm or "instance",
    }
    detected = next((kind for name, kind in kinds.items() if name in weights), None)
    if detected == "instance" and norm is None:
        raise ValueError(
            "The checkpoint has instance or layer norm, whose weights have the same names: pass "
            '`norm="instance"` or `norm="layer"` (--norm).'
        )
    if norm is not None and norm != detected:
        raise ValueError(f"The checkpoint has {detected or 'no'} norm. Received: norm={norm!r}")
    return detected


def _check_weights(backbone: keras.Model, checkpoint: Checkpoint, arch: str) -> None:
    """Raise `ValueError` with all differences between `checkpoint` and what `backbone` needs."""
    expected = {name: to_torch(weight).shape for name, weight in named_weights(backbone)}
    actual = {
        name: value.shape
        for name, value in checkpoint.weights.items()
        if not UNUSED.match(name) and "initialized" not in name
    }
    differences = {
        "missing": [name for name in expected if name not in actual],
        "unexpected": [name for name in actual if name not in expected],
        "of another shape": [
            f"{name} {actual[name]} instead of {shape}"
            for name, shape in expected.items()
            if name in actual and actual[name] != shape
        ],
    }
    problems = "; ".join(f"{kind}: {_shorten(ns)}" for kind, ns in differences.items() if ns)
    if problems:
        blocks = len({name.split(".")[2] for name in actual if name.startswith("f.layer1.")})
        first = checkpoint.weights.get("f.layer1.0.conv1.weight")
        hint = "" if first is None else f" It looks like wrn-{6 * blocks + 4}-{len(first) // 16}."
        norm = checkpoint.norm or "no"
        raise ValueError(f"{checkpoint.path!r} is not {arch} with {norm} norm.{hint} {problems}")


def _shorten(names: Iterable[str]) -> str:
    names = list(names)
    rest = len(names) - MAX_LISTED_NAMES
    return ", ".join(names[:MAX_LISTED_NAMES]) + (f" and {rest} more" if rest > 0 else "")
