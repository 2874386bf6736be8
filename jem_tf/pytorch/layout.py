"""Checkpoints of the JEM authors' code, and of JEM++, as a `JEM`, and back.

Not here: the files (`files.py`), the network (`backbones/wide_resnet.py`, whose layers have the
names that they have there).
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from jem_tf import backbones
from jem_tf.model.jem import JEM
from jem_tf.pytorch import files
from jem_tf.sampling import SGLD
from jem_tf.sampling.replay import ReplayBuffer

NAMES = {  # of weights, there
    "kernel": "weight",
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}
# Never used by a classifier, or second names of other weights (JEM++).
UNUSED = re.compile(
    r"f\.linear\.|f\.layer_one\.|f\.other_layers\.|energy_output\.|.*\.num_batches_tracked$"
)


class Checkpoint(NamedTuple):
    """What a file holds: weights by name, the replay buffer `[capacity, channels, size, size]`, and
    the kind of normalisation that the names tell of."""

    path: str
    weights: dict[str, np.ndarray]
    chains: np.ndarray | None
    norm: str | None


def load(
    path: str | Path,
    arch: str = "wrn-28-10",
    norm: str | None = None,
    classes: int | None = None,
) -> JEM:
    """The checkpoint at `path` as a `JEM` with the paper's sampler, its replay buffer included.

    ```python
    model = jem_tf.pytorch.load("CIFAR10_MODEL.pt", "wrn-28-10")
    ```

    `arch` is "wrn-DEPTH-WIDTH". `norm` is found in the checkpoint, but for "instance" and "layer",
    which look alike there. `classes` is how many it should know, if that is known.
    """
    return build(read(path, norm), arch, classes)


def read(path: str | Path, norm: str | None = None) -> Checkpoint:
    """What is in the checkpoint at `path`."""
    content = files.read(path)
    state = content.get("model_state_dict", content) if isinstance(content, dict) else None
    if not isinstance(state, dict) or not all(isinstance(k, str) for k in state):
        raise ValueError(f"{str(path)!r} holds a {type(content).__name__}, not named weights.")
    state = {k.removeprefix("module."): v for k, v in state.items() if isinstance(v, np.ndarray)}
    for name in ("class_output.weight", "f.conv1.weight"):
        if name not in state:
            raise ValueError(
                f"{str(path)!r} is not of the JEM authors' WideResNet: it has no {name}. "
                f"Received: {_few(state) or 'no weights'}"
            )
    chains = content.get("replay_buffer")
    if not isinstance(chains, np.ndarray) or len(chains) == 0:
        chains = None
    elif chains.ndim != 4 or chains.shape[2] != chains.shape[3]:
        raise ValueError(
            "A replay buffer must be [capacity, channels, size, size]. "
            f"Received: {chains.shape} in {str(path)!r}"
        )
    return Checkpoint(str(path), state, chains, _norm(state, norm))


def build(checkpoint: Checkpoint, arch: str = "wrn-28-10", classes: int | None = None) -> JEM:
    """`checkpoint` as a `JEM`; `ValueError` if it is not of `arch`, or not for `classes`."""
    path, state, chains, norm = checkpoint
    known = len(state["class_output.weight"])
    if classes is not None and known != classes:
        raise ValueError(f"{path!r} knows {known} classes, and {classes} are asked for.")
    size = 32 if chains is None else chains.shape[-1]
    shape = (size, size, state["f.conv1.weight"].shape[1])
    backbone = backbones.wide_resnet(shape, known, *sizes(arch), norm)
    _check_fits(backbone, checkpoint, arch)
    for name, weight in _weights(backbone):
        weight.assign(_from_torch(weight, state[name]))
    for layer in backbone.layers:
        if hasattr(layer, "initialized"):
            layer.initialized.assign(1.0)
    buffer = ReplayBuffer(None if chains is None else len(chains))
    model = JEM(backbone, SGLD(20, step_size=1.0, noise=0.01), buffer, input_noise=0.03)
    model.start.adapt(np.stack([-np.ones(shape), np.ones(shape)]))
    if chains is not None:
        rows = np.moveaxis(chains, 1, -1)[np.newaxis].astype(np.float32)
        buffer.assign(chains=rows, age=np.zeros(rows.shape[:2], np.float32))
    return model


def save(model: JEM, path: str | Path) -> None:
    """Write `model`, a JEM of a `wide_resnet`, so that the JEM authors' code loads it."""
    backbone = model.backbone
    names = {layer.name for layer in backbone.layers}
    if not {"conv1", "layer1.0.conv1", "class_output"} <= names:
        raise ValueError(
            "Only a `backbones.wide_resnet` has the layers of the authors' code. "
            f"Received: {backbone.name!r}"
        )
    state: dict[str, np.ndarray] = {}
    for name, weight in _weights(backbone):
        state[name] = _to_torch(weight)
        if name.endswith("running_var"):
            state[name.replace("running_var", "num_batches_tracked")] = np.array(0)
        if name.endswith(".loc"):
            state[name.replace("loc", "initialized")] = np.array(1, np.uint8)
    features = state["class_output.weight"].shape[1]
    for name, rows in {"f.linear": 10, "energy_output": 1}.items():  # there, and never used
        state |= {f"{name}.weight": np.zeros((rows, features), np.float32)}
        state |= {f"{name}.bias": np.zeros(rows, np.float32)}
    content: dict[str, Any] = {"model_state_dict": state}
    if model.buffer.filled:
        chains = model.buffer.arrays()["chains"]  # [replicas, capacity, height, width, channels]
        rows = chains.reshape(-1, *chains.shape[2:])
        content["replay_buffer"] = np.moveaxis(rows, -1, 1)
    files.write(path, content)


def sizes(arch: str) -> tuple[int, int]:
    """Depth and width in `arch`."""
    match = re.fullmatch(r"wrn-(\d+)-(\d+)", arch)
    if match is None:
        raise ValueError(
            f"`arch` must be wrn-DEPTH-WIDTH, such as wrn-28-10. Received: arch={arch!r}"
        )
    return int(match[1]), int(match[2])


def _norm(state: dict[str, np.ndarray], asked: str | None) -> str | None:
    """The kind of normalisation that the names in `state` tell of."""
    tells = {"f.bn1.running_mean": "batch", "f.bn1.loc": "act", "f.bn1.weight": asked or "instance"}
    found = next((norm for name, norm in tells.items() if name in state), None)
    if found == "instance" and asked is None:
        raise ValueError(
            "The checkpoint has instance or layer norm, which look alike: say which, "
            '`norm="instance"` or `norm="layer"` (--norm).'
        )
    if asked is not None and asked != found:
        raise ValueError(f"The checkpoint has {found or 'no'} norm. Received: norm={asked!r}")
    return found


def _check_fits(backbone: keras.Model, checkpoint: Checkpoint, arch: str) -> None:
    """Raise `ValueError` with all that differs between a checkpoint and what `backbone` needs."""
    state = checkpoint.weights
    needed = {name: _to_torch(weight).shape for name, weight in _weights(backbone)}
    given = {k: v.shape for k, v in state.items() if not UNUSED.match(k) and "initialized" not in k}
    parts = {
        "missing": [k for k in needed if k not in given],
        "not known": [k for k in given if k not in needed],
        "of another shape": [
            f"{k} {given[k]} instead of {needed[k]}"
            for k in needed
            if k in given and given[k] != needed[k]
        ],
    }
    wrong = "; ".join(f"{what}: {_few(names)}" for what, names in parts.items() if names)
    if wrong:
        blocks = len({k.split(".")[2] for k in given if k.startswith("f.layer1.")})
        first = state.get("f.layer1.0.conv1.weight")
        looks = "" if first is None else f" It looks like wrn-{6 * blocks + 4}-{len(first) // 16}."
        norm = checkpoint.norm or "no"
        raise ValueError(f"{checkpoint.path!r} is not {arch} with {norm} norm.{looks} {wrong}")


def _weights(backbone: keras.Model) -> Iterator[tuple[str, Any]]:
    """The weights of `backbone` with the names that they have there."""
    for layer in backbone.layers:
        place = layer.name if layer.name == "class_output" else f"f.{layer.name}"
        for weight in layer.weights:
            if weight.name != "initialized":
                yield f"{place}.{NAMES.get(weight.name, weight.name)}", weight


def _to_torch(weight: Any) -> np.ndarray:
    value = weight.numpy()
    if value.ndim == 4:
        return np.ascontiguousarray(value.transpose(3, 2, 0, 1))
    if weight.name in ("loc", "scale"):
        return value.reshape(1, -1, 1, 1)
    return np.ascontiguousarray(value.T)


def _from_torch(weight: Any, value: np.ndarray) -> tf.Tensor:
    turned = value.transpose(2, 3, 1, 0) if len(weight.shape) == 4 else value.T
    return tf.reshape(tf.cast(np.ascontiguousarray(turned), tf.float32), weight.shape)


def _few(names: Any, limit: int = 6) -> str:
    names = list(names)
    rest = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + rest
