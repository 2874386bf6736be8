"""A mixture of Gaussians as an energy-based model, compared with its closed form.

    python examples/mixture.py

A classifier with the logits log(share_k) + log N(x; mean_k, covariance_k) + constant is a mixture
of Gaussians: p(x | y = k) is the Gaussian k, and p(x) is the mixture. The network below has such
logits, and learns means, precisions and shares by gradient descent. Its energies are then compared
with densities that SciPy computes from the learned parameters.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from keras import ops
from scipy.stats import multivariate_normal

import jem_tf


@keras.saving.register_keras_serializable("jem_tf_examples")
class GaussianLogits(keras.layers.Layer):
    """b_k - |R_k (x - m_k)|^2 / 2: the log density of a Gaussian with precision R'R, plus log Z."""

    def __init__(self, classes, **kwargs):
        super().__init__(**kwargs)
        self.classes = classes

    def build(self, shape):
        d = shape[-1]
        self.mean = self.add_weight(shape=(self.classes, d), initializer="random_normal")
        eye = np.tile(np.eye(d), (self.classes, 1, 1))
        self.root = self.add_weight(shape=(self.classes, d, d), initializer="zeros")
        self.root.assign(eye)
        self.bias = self.add_weight(shape=(self.classes,), initializer="zeros")

    def call(self, x):
        offset = ops.einsum("kij,nkj->nki", self.root, x[:, None] - self.mean)
        return self.bias - ops.sum(ops.square(offset), -1) / 2

    def closed_form(self):
        """Return the learned shares and Gaussians, computed by SciPy."""
        mean, root, bias = (np.asarray(w, np.float64) for w in (self.mean, self.root, self.bias))
        parts = [multivariate_normal(m, np.linalg.inv(r.T @ r)) for m, r in zip(mean, root)]
        # At the mean of a part, share * density is exp(b_k): log share = b_k - log N(m; m).
        share = np.exp(bias - [part.logpdf(m) for part, m in zip(parts, mean)])
        return share, parts


def main():
    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    truth = [([-1.5, 0.0], [[0.4, 0.2], [0.2, 0.3]]), ([1.5, 0.5], [[0.2, 0.0], [0.0, 0.6]])]
    y = (rng.uniform(size=3000) < 0.6).astype(int)
    x = np.array([rng.multivariate_normal(*truth[k]) for k in y], np.float32)

    layer = GaussianLogits(2)
    model = jem_tf.JEM(
        keras.Sequential([keras.Input((2,)), layer]),
        sampler=jem_tf.MALA(10),
        buffer=jem_tf.ReplayBuffer(1000),
        input_noise=0.0,
        seed=0,
    )
    rate = keras.optimizers.schedules.CosineDecay(2e-2, 900, alpha=0.05)
    model.compile(keras.optimizers.Adam(rate), metrics=["accuracy"])
    model.fit(x, y, batch_size=100, epochs=30, verbose=0)

    share, parts = layer.closed_form()
    log_z = np.log(share.sum())
    by_class = np.stack([np.log(s) + p.logpdf(x) for s, p in zip(share, parts)], 1)
    joint = np.stack([model.energy(x, np.full(len(x), k)) for k in (0, 1)], 1)
    marginal = np.log(np.exp(by_class).sum(1))
    learned = (marginal - log_z).mean()
    weight = share / share.sum()
    real = [multivariate_normal(*part) for part in truth]
    best = np.log(0.4 * real[0].pdf(x) + 0.6 * real[1].pdf(x)).mean()
    print(f"joint energies differ from SciPy's by at most {np.abs(joint + by_class).max():.1e}")
    print(f"energies differ from SciPy's by at most {np.abs(model.energy(x) + marginal).max():.1e}")
    print(f"learned shares {weight[0]:.2f} and {weight[1]:.2f}, true ones 0.40 and 0.60")
    print(f"mean log p(x) {learned:.3f}, of the true density {best:.3f}")
    samples = model.sample(2000, label=1, steps=500, seed=0)
    print(
        f"mean of samples of class 1 {samples.mean(0).round(2)}, learned {parts[1].mean.round(2)}"
    )


if __name__ == "__main__":
    main()
