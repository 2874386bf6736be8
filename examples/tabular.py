"""Tabular data in its own units: breast cancer diagnoses from 30 measurements.

python examples/tabular.py
"""

import keras
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

import jem_tf

bunch = load_breast_cancer()
x_train, x_test, y_train, y_test = train_test_split(
    bunch.data.astype("float32"),
    bunch.target,
    test_size=0.25,
    stratify=bunch.target,
    random_state=0,
)
print(f"features range from {x_train.min(0).min():g} to {x_train.max(0).max():g}")

normalise = keras.layers.Normalization()
normalise.adapt(x_train)
backbone = keras.Sequential(
    [
        keras.Input((30,)),
        normalise,
        keras.layers.Dense(64, activation="silu"),
        keras.layers.Dense(64, activation="silu"),
        keras.layers.Dense(2),
    ]
)
# Chains move in units of half the range of each feature.
model = jem_tf.JEM(backbone, input_noise=0.05, seed=0)
optimizer = keras.optimizers.Adam(1e-3, clipnorm=1.0, use_ema=True, ema_momentum=0.98)
model.compile(optimizer, metrics=["accuracy"])
model.fit(x_train, y_train, batch_size=64, epochs=150, verbose=0)
accuracy = (model.predict(x_test, verbose=0).argmax(1) == y_test).mean()
print(f"accuracy {accuracy:.3f}")

# Faults of a data pipeline that the confidence of a classifier does not show.
area_in_other_unit = x_test.copy()
area_in_other_unit[:, 3] /= 100
rng = np.random.default_rng(0)
mixed_rows = np.stack([rng.permutation(column) for column in x_test.T], axis=1)
faults = {"area in another unit": area_in_other_unit, "mixed-up patients": mixed_rows}
for name, rows in faults.items():
    for kind in ("gradient_norm", "log_density", "max_probability"):
        scores = [*model.ood_score(x_test, kind), *model.ood_score(rows, kind)]
        auroc = roc_auc_score(np.repeat([1, 0], len(x_test)), scores)
        print(f"AUROC of {kind} against {name}: {auroc:.3f}")
