"""A normalising flow (RealNVP): a distribution with samples and an exact density, as a Keras layer.

Not here: the objectives that use it (`nce.py`, `fce.py`). The couplings are those of TensorFlow
Probability; their shifts and scales are small Keras networks.
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jem_tf._tf.state import State


@keras.saving.register_keras_serializable("jem_tf")
class Flow(State):
    """RealNVP over flattened inputs, fitted to data by maximum likelihood.

    ```python
    flow = Flow(steps=1000)
    flow.adapt(x)                    # x [rows, ...]
    flow.draw(64, seed=(1, 2))
    flow.log_density(x)              # normalised
    ```

    Args:
        couplings: number of coupling layers; each changes one half of the values.
        width: units of the hidden layers.
        steps: training steps of the fit.
        batch_size: rows in each of them.
        learning_rate: of Adam in the fit; it falls to zero by a cosine.
        floor: standard deviation of the noise added to the data in the fit, in half ranges.
            Without noise, constant values would have an infinite density.
    """

    def __init__(
        self,
        couplings: int = 6,
        width: int = 64,
        steps: int = 1000,
        batch_size: int = 256,
        learning_rate: float = 2e-3,
        floor: float = 0.05,
        seed: int = 0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.settings: dict[str, Any] = {
            "couplings": couplings,
            "width": width,
            "steps": steps,
            "batch_size": batch_size,
            "learning_rate": learning_rate,
            "floor": floor,
            "seed": seed,
        }
        for name, value in self.settings.items():
            if name not in ("floor", "seed") and not value > 0:
                raise ValueError(f"`{name}` must be positive. Received: {name}={value!r}")
        self.networks: list[keras.Model] = []

    @property
    def flow_weights(self) -> list[Any]:
        """The weights, for the objective that trains the flow."""
        return [weight.value for network in self.networks for weight in network.weights]

    @property
    def adapted(self) -> bool:
        return "middle" in self

    def adapt(self, x: np.ndarray, y: Any = None, classes: int = 0) -> None:
        """Fit the flow to rows `x`; labels are not used."""
        rows = x.reshape(len(x), -1).astype(np.float32)
        if rows.shape[1] < 2:
            raise ValueError(f"A flow needs two values or more. Received: shape {x.shape[1:]}")
        low, high = rows.min(0), rows.max(0)
        half = np.where(high > low, (high - low) / 2, 1.0)
        floor = self.settings["floor"]
        size = np.sqrt(rows.var(0) + (floor * half) ** 2)
        shape = np.asarray(x.shape[1:], np.int32)
        self.assign(middle=rows.mean(0), size=size.astype(np.float32), shape=shape)
        self._create_networks()
        self._fit(rows, (floor * half).astype(np.float32))

    def build_from_config(self, config: dict[str, Any]) -> None:
        pass

    def _create_networks(self) -> None:
        """Create the networks of the couplings, for inputs of the adapted shape."""
        d, width = self["middle"].shape[0], self.settings["width"]
        self._static_shape = tuple(int(n) for n in self["shape"].numpy())
        keep = d // 2
        for i in range(self.settings["couplings"]):
            num_inputs = keep if i % 2 == 0 else d - keep
            seed = self.settings["seed"] + 10 * i
            seeds = [keras.initializers.GlorotUniform(seed + j) for j in (0, 1)]
            network = keras.Sequential(
                [
                    keras.Input((num_inputs,)),
                    keras.layers.Dense(width, "silu", kernel_initializer=seeds[0]),
                    keras.layers.Dense(width, "silu", kernel_initializer=seeds[1]),
                    keras.layers.Dense(2 * (d - num_inputs), kernel_initializer="zeros"),
                ]
            )
            network.trainable = False  # the optimizer of the model must not train the flow
            self.networks.append(network)

    def _distribution(self) -> Any:
        import tensorflow_probability as tfp

        bijectors, distributions = tfp.bijectors, tfp.distributions
        d = self["middle"].shape[0]
        layers = [bijectors.Shift(self["middle"]), bijectors.Scale(self["size"])]
        for i, network in enumerate(self.networks):
            num_inputs = d // 2 if i % 2 == 0 else d - d // 2
            layers.append(
                bijectors.RealNVP(
                    num_masked=num_inputs if i % 2 == 0 else -num_inputs,
                    shift_and_log_scale_fn=_coupling(network),
                )
            )
        base = distributions.MultivariateNormalDiag(tf.zeros([d]), tf.ones([d]))
        return distributions.TransformedDistribution(base, bijectors.Chain(layers))

    def draw(self, n: Any, seed: Any, labels: Any = None) -> tf.Tensor:
        """Draw `n` samples; gradients flow back to the weights of the flow."""
        flat = self._distribution().sample(n, seed=tf.convert_to_tensor(seed))
        return tf.reshape(flat, [n, *self._static_shape])

    def log_density(self, x: tf.Tensor) -> tf.Tensor:
        """log q(x), normalised; `[n]`."""
        flat = tf.reshape(x, [tf.shape(x)[0], self["middle"].shape[0]])
        return self._distribution().log_prob(flat)

    def _fit(self, rows: np.ndarray, noise: np.ndarray) -> None:
        optimizer = keras.optimizers.Adam(
            keras.optimizers.schedules.CosineDecay(
                self.settings["learning_rate"], self.settings["steps"]
            ),
            clipnorm=1.0,
        )
        weights = self.flow_weights
        optimizer.build(weights)
        data, count = tf.constant(rows), len(rows)

        def step(index: tf.Tensor) -> None:
            seeds = tf.random.split(tf.stack([self.settings["seed"], index]), 2)
            size = [self.settings["batch_size"]]
            indices = tf.random.stateless_uniform(size, seeds[0], 0, count, tf.int32)
            x = tf.gather(data, indices)
            x += noise * tf.random.stateless_normal(tf.shape(x), seeds[1])
            with tf.GradientTape() as tape:
                tape.watch(weights)
                loss = -tf.reduce_mean(self.log_density(x))
            gradients = tape.gradient(loss, weights)
            optimizer.apply_gradients(zip(gradients, weights))

        strategy = tf.distribute.get_strategy()
        run_step = tf.function(  # the same on each
            lambda index: strategy.run(step, (index,)), autograph=False
        )
        for index in tf.range(self.settings["steps"]):
            run_step(index)

    def load_own_variables(self, store: Any) -> None:
        super().load_own_variables(store)
        if not self.networks:
            self._create_networks()  # before Keras loads their weights

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self.settings}


def _coupling(network: keras.Model) -> Any:
    def shift_and_log_scale(x: tf.Tensor, units: int, **_: Any) -> tuple[tf.Tensor, tf.Tensor]:
        shift, scale = tf.split(network(x), 2, axis=-1)
        return shift, 2.0 * tf.tanh(scale / 2.0)  # a coupling stretches by at most exp(2)

    return shift_and_log_scale
