"""Text: a JEM on sentence vectors, from strings to a SavedModel that takes strings.

    python examples/text.py
    python examples/text.py --embedder bert_tiny_en_uncased    # pip install 'jem_tf[text]'

The corpus is real and needs no download: documentation of NumPy, scikit-learn and Keras, as it is
installed. The encoder is latent semantic analysis, TF-IDF with whitened principal components. It
knows single words only, and texts on other subjects are hardly detected. With `--embedder` it is a
pretrained network of KerasHub: the name of a preset, which is downloaded, or its directory.
"""

import argparse
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


def embedder(preset):
    """A network of KerasHub from strings to the mean of the vectors of their words."""
    try:
        import keras_hub
    except ImportError:
        raise SystemExit("--embedder needs KerasHub: pip install 'jem_tf[text]'") from None
    models = keras_hub.models
    tokens = models.TextClassifierPreprocessor.from_preset(preset, sequence_length=64)
    text = keras.Input((), dtype="string")
    words = tokens(text)
    vectors = models.Backbone.from_preset(preset)(words)["sequence_output"]
    mean = keras.layers.GlobalAveragePooling1D()(vectors, mask=words["padding_mask"])
    return keras.Model(text, mean)


def term_frequencies(texts):
    """A network from strings to TF-IDF of the words in `texts`."""
    words = keras.layers.TextVectorization(max_tokens=10_000, output_mode="tf_idf")
    words.adapt(texts)
    return keras.Sequential(
        [keras.Input((), dtype="string"), words, keras.layers.UnitNormalization()]
    )


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--embedder", help="preset of KerasHub (default: TF-IDF)")
parser.add_argument("--units", type=int, default=128, help="principal components (default: 128)")
arguments = parser.parse_args()

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

network = embedder(arguments.embedder) if arguments.embedder else term_frequencies(x)
encoder = backbones.whitened(network, x, arguments.units)

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
