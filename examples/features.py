"""The density of features: does it know how the features of a trained classifier hang together?

python examples/features.py

A JEM with default settings learns the features before the last layer of a digits classifier. Its
log density is compared with the Mahalanobis distance to the nearest class on the same features, and
its calibration with a plain network's. Two minutes on two cores.
"""

import keras
import numpy as np
from sklearn.metrics import roc_auc_score

import jem_tf
from jem_tf import backbones, data
from jem_tf.data import ood_sets
from jem_tf.detection.calibration import confidence_of, reliability
from jem_tf.model.encoding import as_features

BATCH, EPOCHS = 64, 60
keras.utils.set_random_seed(0)
digits = data.load("digits")
(x, y), (x_test, y_test) = digits.arrays("train"), digits.arrays("test")
classifier = backbones.convnet(digits.shape, 10)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
classifier.compile(keras.optimizers.Adam(1e-3), loss)
classifier.fit(x, y, batch_size=BATCH, epochs=15, verbose=0)
features = keras.Model(classifier.inputs[0], classifier.layers[-2].output)
encoder = backbones.whitened(features, x, units=32)


def train(objective):
    """Train three dense layers on the features, as a JEM or as a plain classifier."""
    head = backbones.mlp((32,), 10)
    model = jem_tf.JEM(head, encoder=encoder, objective=objective, input_noise=0.02, seed=0)
    model.compile(keras.optimizers.Adam(1e-3, clipnorm=1.0, use_ema=True, ema_momentum=0.99))
    logs = model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, verbose=0).history  # encoded once
    return model, logs


plain, _ = train("cross_entropy")
jem, logs = train("joint")
inside, known = jem.encode(x_test), jem.encode(x)  # vectors, which every method takes, too
rng = np.random.default_rng(0)
columns = [rng.permutation(column) for column in inside.T]
outside = {
    "shuffled": as_features(np.stack(columns, axis=1)),
    **{
        name: jem.encode(ood_sets.load(name, digits, len(x_test)))
        for name in ("patches", "noise", "constant")
    },
}
means = np.stack([known[y == k].mean(0) for k in range(10)])
precision = np.linalg.inv(np.cov((known - means[y]).T))


def mahalanobis(rows):
    """Minus the squared distance to the nearest class."""
    offsets = rows[:, None] - means
    return -np.einsum("nkd,de,nke->nk", offsets, precision, offsets).min(1)


print(f"gap between samples and data {abs(logs['gap'][-1]):.2f} nats")
print(f"trusted {logs['trusted'][-1]:.3f}")
for name, model in (("plain", plain), ("JEM", jem)):
    logits = model.predict(x_test, verbose=0)
    ece = reliability(*confidence_of(logits, y_test)).ece
    print(f"{name}: accuracy {(logits.argmax(1) == y_test).mean():.3f}, ECE {ece:.3f}")
scores = {
    "Mahalanobis": mahalanobis,
    "log density": lambda rows: jem.ood_score(rows, "log_density"),
}
for name, rows in outside.items():
    for kind, score in scores.items():
        labels = np.repeat([1, 0], [len(inside), len(rows)])
        auroc = roc_auc_score(labels, [*score(inside), *score(rows)])
        print(f"AUROC of {kind} against {name}: {auroc:.3f}")
