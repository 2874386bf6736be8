"""The detector of a model: statistics, their fusion, and the conformal verdict, in the graph.

Not here: how it is fitted (`model/detecting.py`), its parts (the other modules of this package).
"""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from jem_tf import energy as maths
from jem_tf._tf.state import State
from jem_tf.checks import check_positive
from jem_tf.detection import conformal, statistics
from jem_tf.detection.features import feature_network, find_layers, to_vectors, vector_size
from jem_tf.detection.fusion import fit_fusion, fused_score, objections

OF_LOGITS = ("log_density", "gradient_norm", "max_probability", "ascent")
FUSED = "fused"
MAX_BYTES = 20e6  # of a fitted detector, by default


class Readings(NamedTuple):
    """What two forward passes and a backward pass say about inputs."""

    logits: tf.Tensor  # [n, classes]
    statistics: tf.Tensor  # [n, statistics], in the order of `Detector.names`


@keras.saving.register_keras_serializable("jem_tf")
class Detector(State):
    """Decides whether an input is out of distribution.

    ```python
    model = jem_tf.JEM(backbone, detector=Detector(false_alarm_rate=0.05))
    model.fit_detector(x_val, y_val, reference=(x_train, y_train))  # after `fit`
    model.is_ood(x)
    ```

    It combines log p(x), the norm of its gradient, its rise by one step uphill, the largest
    probability, and for hidden layers the Mahalanobis distance, the distance to the nearest
    training rows and the residual of a principal subspace. Weights are chosen with outliers that
    are made from validation rows. The verdict is conformal: of inputs like the validation rows, a
    share of at most `false_alarm_rate` is flagged on average.

    Args:
        false_alarm_rate: the share of in-distribution inputs that may be flagged.
        layers: names of the layers whose outputs are the features; by default the last layer of
            each size, of an encoder too. The last name is that of the layer for the residual.
            Without layers, `()`, only logits and the gradient are used.
        per_class: compare an input with the validation rows of its predicted class only, so that
            the false alarm rate holds for each predicted class.
        max_bytes: size of the arrays that are kept, about.
    """

    def __init__(
        self,
        false_alarm_rate: float = conformal.FALSE_ALARM_RATE,
        layers: tuple[str, ...] | None = None,
        per_class: bool = False,
        max_bytes: float = MAX_BYTES,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if not 0 < false_alarm_rate < 1:
            raise ValueError(
                "`false_alarm_rate` must be between 0 and 1. "
                f"Received: false_alarm_rate={false_alarm_rate!r}"
            )
        check_positive("max_bytes", max_bytes)
        self.false_alarm_rate = float(false_alarm_rate)
        self.layers = None if layers is None else tuple(layers)
        self.per_class, self.max_bytes = bool(per_class), float(max_bytes)
        self.rounds = False  # whether what is learned of the reference is rounded to bfloat16
        self.layer_names: tuple[str, ...] = ()
        self.reads_encoder = False
        self._networks: list[Callable[[tf.Tensor], list[tf.Tensor]]] = []

    def attach(self, backbone: keras.Model, encoder: keras.Model | None = None) -> None:
        """Find the feature layers of `backbone`, and of the `encoder` before it.

        Raises `ValueError` if a named layer is missing.
        """
        self.reads_encoder = encoder is not None
        parts = [backbone] if encoder is None else [encoder, backbone]
        found = [find_layers(part) for part in parts]
        if self.layers is not None:
            known = set() if encoder is None else {layer.name for layer in encoder.layers}
            found = [[name for name in self.layers if name not in known]]
            found = found if encoder is None else [[n for n in self.layers if n in known], *found]
        networks = [feature_network(part, names) for part, names in zip(parts, found)]
        self.layer_names = tuple(name for names in found for name in names)
        outputs = [o for n, names in zip(networks, found) if names for o in n.outputs[:-1]]
        self._sizes = [vector_size(output.shape) for output in outputs]
        # Functions: Keras would take models for parts of this layer, with weights to save.
        self._networks = [partial(_call, network) for network in networks]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the statistics; `mahalanobis_1` is that of the first feature layer."""
        numbers = range(1, len(self.layer_names) + 1)
        by_layer = [f"{name}_{i}" for i in numbers for name in ("mahalanobis", "neighbours")]
        return (*OF_LOGITS, *(("residual",) if by_layer else ()), *by_layer)

    @property
    def fitted(self) -> bool:
        """Whether it has been fitted, here or before the model was saved."""
        return "calibration" in self

    def features(self, x: tf.Tensor) -> tf.Tensor:
        """The feature vectors of all layers side by side, `[n, d_1 + d_2 + ...]`."""
        outputs: list[tf.Tensor] = []
        for network in self._networks:
            *hidden, x = network(x)
            outputs += hidden
        return tf.concat([to_vectors(output) for output in outputs], axis=1)

    def read(self, x: tf.Tensor, scale: tf.Tensor) -> Readings:
        """Logits and statistics of `x`.

        `scale` is the unit of the inputs in the norm of the gradient. With an encoder these are the
        vectors that it returns: the density is theirs.
        """
        *encoder, backbone = self._networks
        outputs: list[tf.Tensor] = []
        for network in encoder:
            *outputs, x = network(x)
            x = tf.cast(x, tf.float32)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(x)
            *hidden, logits = backbone(x)
            logits = tf.cast(logits, tf.float32)
        density = maths.log_density(logits)
        gradient = scale * tape.gradient(logits, x, maths.log_density_gradient(logits))
        *_, above = backbone(statistics.step_uphill(x, gradient, scale))
        gradient = tf.reshape(gradient, [tf.shape(x)[0], -1])
        columns = [density, -tf.norm(gradient, axis=-1), statistics.max_probability(logits)]
        columns.append(density - maths.log_density(tf.cast(above, tf.float32)))
        vectors = [to_vectors(output) for output in (*outputs, *hidden)]
        if vectors:
            subspace = statistics.Subspace(self["subspace_centre"], self["subspace_directions"])
            columns.append(statistics.residual(vectors[-1], subspace))
        for number, vector in enumerate(vectors, start=1):
            arrays = (self[f"{name}_{number}"] for name in statistics.Gaussians._fields)
            columns.append(statistics.mahalanobis(vector, statistics.Gaussians(*arrays)))
            columns.append(statistics.neighbours(vector, self[f"bank_{number}"]))
        return Readings(logits, tf.stack(columns, axis=1))

    def score(self, readings: tf.Tensor) -> tf.Tensor:
        """The fused score of statistics `[n, s]`; `[n]`, higher for inputs like the data."""
        return fused_score(readings, self["table"], self["low"], self["high"])

    def objections(self, readings: tf.Tensor) -> tf.Tensor:
        """How much each statistic lowers the fused score: why an input is unusual; `[n, s]`."""
        return objections(readings, self["table"], self["low"], self["high"])

    def p_value(self, score: tf.Tensor, predicted: tf.Tensor) -> tf.Tensor:
        """The conformal p-value of fused scores `[n]` with `predicted` classes `[n]`; `[n]`."""
        groups = predicted if self.per_class else None
        return conformal.p_values(score, self["calibration"], groups)

    def fit_reference(self, vectors: np.ndarray, labels: np.ndarray) -> None:
        """Learn where the `features` `[n, d]` of training rows are; all labels may be equal."""
        ends = np.cumsum(self._sizes)
        parts = [vectors[:, end - size : end] for size, end in zip(self._sizes, ends)]
        keep: Callable[[np.ndarray], np.ndarray]
        keep = statistics.rounded if self.rounds else statistics.single
        arrays: dict[str, np.ndarray] = {}
        for number, (name, part) in enumerate(zip(self.layer_names, parts), start=1):
            finite = np.isfinite(part).all(1)
            if not finite.all():
                raise ValueError(
                    f"Layer {name!r} has non-finite outputs for {(~finite).sum()} of "
                    f"{len(part)} rows: choose others with Detector(layers=...)."
                )
            gaussians = statistics.fit_gaussians(part, labels, keep)
            arrays |= {f"{key}_{number}": value for key, value in gaussians._asdict().items()}
        if parts:
            centre, directions = statistics.fit_subspace(parts[-1])
            arrays |= {"subspace_centre": centre, "subspace_directions": keep(directions)}
        left = self.max_bytes - sum(array.nbytes for array in arrays.values())
        for number, part in enumerate(parts, start=1):  # banks of equally many rows
            share = left * part.shape[1] / vectors.shape[1]
            arrays[f"bank_{number}"] = keep(statistics.fit_bank(part, share))
        self.assign(**arrays)

    def fit_fusion(self, inside: np.ndarray, outliers: dict[str, np.ndarray]) -> None:
        """Choose the weights of the statistics `[n, s]` of held-out rows and of outliers."""
        self.assign(**fit_fusion(inside, outliers)._asdict())

    def fit_threshold(self, scores: np.ndarray, predicted: np.ndarray) -> None:
        """Learn the distribution of the fused scores `[n]` of other held-out rows."""
        groups = predicted if self.per_class else None
        self.assign(calibration=conformal.sorted_table(scores, groups))

    def convert_saved(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Nothing, with a warning, if the file has the weights of other statistics."""
        if "low" not in arrays or len(arrays["low"]) == len(self.names):
            return arrays
        warnings.warn(
            f"The detector in this file combines {len(arrays['low'])} statistics, and that of this "
            f"version {len(self.names)}: call `fit_detector` again.",
            stacklevel=2,
        )
        return {}

    def describe(self) -> dict[str, Any]:
        """The settings, the layers and the weights of the statistics, as JSON values."""
        arrays = self.arrays()
        weights = {
            name: {"low": round(float(low), 4), "high": round(float(high), 4)}
            for name, low, high in zip(self.names, arrays["low"], arrays["high"])
        }
        return {
            "false_alarm_rate": self.false_alarm_rate,
            "per_class": self.per_class,
            "rows": int(np.isfinite(arrays["calibration"]).sum()),
            "layers": list(self.layer_names),
            "weights": weights,
            "bytes": sum(array.nbytes for array in arrays.values()),
        }

    def get_config(self) -> dict[str, Any]:
        names = ("false_alarm_rate", "layers", "per_class", "max_bytes")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


def _call(network: keras.Model, x: tf.Tensor) -> list[tf.Tensor]:
    """The outputs of `network` at inference, as a list."""
    outputs = network(x, training=False)
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
