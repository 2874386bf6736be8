"""Text: a JEM on sentence vectors, from strings to a SavedModel that takes strings.

python examples/text.py

The corpus is real and needs no download: documentation of NumPy, scikit-learn and Keras, as it is
installed. The encoder is latent semantic analysis, TF-IDF with whitened principal components. It
knows single words only, and texts on other subjects are hardly detected. Any Keras model from
strings to vectors, such as a sentence embedder of KerasHub, can take its place.
"""

import inspect
import random

import keras
import numpy as np
import sklearn
from sklearn.metrics import roc_auc_score

import jem_tf
from jem_tf import backbones

SUBJECTS = {
    "arrays": [np, np.linalg, np.random],
    "learning": [sklearn.cluster, sklearn.linear_model, sklearn.metrics, sklearn.svm],
    "networks": [keras.layers, keras.losses, keras.callbacks],
}
OTHER = [inspect, random, __import__("email.message").message, __import__("http.client").client]


def paragraphs(modules):
    """Paragraphs of 8 words or more in the documentation of all public names of `modules`."""
    texts = set()
    for module in modules:
        for name in dir(module):
            text = inspect.getdoc(getattr(module, name)) or ""
            texts |= {" ".join(p.split()) for p in text.split("\n\n") if len(p.split()) >= 8}
    return sorted(texts)


keras.utils.set_random_seed(0)
texts, labels = [], []
for label, modules in enumerate(SUBJECTS.values()):
    found = paragraphs(modules)
    random.Random(0).shuffle(found)
    texts += found[:1200]
    labels += [label] * len(found[:1200])
order = np.random.default_rng(0).permutation(len(texts))
x, y = np.array(texts)[order], np.array(labels)[order]
parts = [int(0.6 * len(x)), int(0.8 * len(x))]
(x, x_val, x_test), (y, y_val, y_test) = np.split(x, parts), np.split(y, parts)

vectorize = keras.layers.TextVectorization(max_tokens=10_000, output_mode="tf_idf")
vectorize.adapt(x)
layers = [keras.Input((), dtype="string"), vectorize, keras.layers.UnitNormalization()]
encoder = backbones.whitened(keras.Sequential(layers), x, units=128)

head = backbones.mlp(encoder.output_shape[1:], len(SUBJECTS))
model = jem_tf.JEM(head, encoder=encoder, seed=0)
model.compile(keras.optimizers.Adam(1e-3, clipnorm=1.0, use_ema=True, ema_momentum=0.99))
model.fit(x, y, batch_size=64, epochs=20, verbose=0)
model.fit_detector(x_val, y_val, reference=(x, y))

accuracy = (model.predict(x_test, verbose=0).argmax(1) == y_test).mean()
print(f"accuracy {accuracy:.3f} of {len(x_test)} paragraphs")
other = paragraphs(OTHER)
scores = [*model.ood_score(x_test), *model.ood_score(other)]
auroc = roc_auc_score(np.repeat([1, 0], [len(x_test), len(other)]), scores)
print(f"AUROC against {len(other)} paragraphs on other subjects: {auroc:.3f}")
print(f"flagged: {model.is_ood(x_test).mean():.1%} of the test paragraphs")
version = jem_tf.export(
    model, "saved_models/text", calibrate=(x_val, y_val), class_names=tuple(SUBJECTS)
)
print(f"Wrote {version}: its inputs are strings")
