"""JEM on the features of a trained classifier, beside that classifier.

    jem-tf train cifar10 --recipe cifar10-classifier --objective cross_entropy --out runs/plain
    python benchmarks/features.py runs/plain --data-dir ~/tfds --seeds 3

For each seed: training time, accuracy, ECE, and the AUROC of the fused score against each
out-of-distribution set. The classifier's own detector is fitted to the same rows; the best of its
scores is that with the largest mean AUROC. Then what the density alone knows: the AUROC of log p(x)
beside that of the Mahalanobis distance to the nearest class on the same features, also against
features whose columns are shuffled, which only their dependence gives away.
"""

import argparse
import time

import keras
import numpy as np
from sklearn.metrics import roc_auc_score

import jem_tf
from jem_tf import backbones
from jem_tf.data import ood_sets
from jem_tf.detection.calibration import confidence_of, reliability
from jem_tf.model.classifiers import without_softmax
from jem_tf.model.encoding import as_features
from jem_tf.model.loading import load_classifier
from jem_tf.training import run_directory


def print_calibration(model, data):
    """Print accuracy and ECE on the test rows."""
    x, y = data.arrays("test")
    logits = model.predict(x, batch_size=256, verbose=0)
    print(f"  accuracy {100 * (logits.argmax(1) == y).mean():.2f} %", end="")
    print(f", ECE {100 * reliability(*confidence_of(logits, y)).ece:.2f} %", flush=True)


def measure(model, data, sets):
    """Print accuracy, ECE, and the AUROC of the fused and the best single score by set."""
    print_calibration(model, data)
    inside = data.arrays("test", 2000)[0]
    parts = [model.statistics(rows) for rows in (inside, *sets.values())]
    scores = {name: [p[:, i] for p in parts] for i, name in enumerate(model.detector.names)}
    aurocs = {name: _aurocs(values) for name, values in scores.items()}
    best = max(aurocs, key=lambda name: np.mean(aurocs[name]))
    fused = _aurocs([np.asarray(model.detector.score(p)) for p in parts])
    print(" " * 28 + " ".join(f"{name[:14]:>14}" for name in sets) + "           mean")
    for name, row in {"fused": fused, f"best single, {best}": aurocs[best]}.items():
        print(f"  {name:26}" + " ".join(f"{v:14.3f}" for v in (*row, np.mean(row))), flush=True)


def measure_density(model, data, sets):
    """Print the AUROC of log p(x) and of the Mahalanobis distance on the same features by set."""
    (x, y), rows = data.arrays("train"), model.encode(data.arrays("test")[0])
    known = model.encode(x)
    means = np.stack([known[y == k].mean(0) for k in range(len(data.class_names))])
    precision = np.linalg.inv(np.cov((known - means[y]).T))

    def mahalanobis(rows):
        offsets = rows[:, None] - means
        return -np.einsum("nkd,de,nke->nk", offsets, precision, offsets).min(1)

    rng = np.random.default_rng(0)
    shuffled = as_features(np.stack([rng.permutation(column) for column in rows.T], axis=1))
    outside = {"shuffled": shuffled, **{name: model.encode(v) for name, v in sets.items()}}
    print(" " * 28 + " ".join(f"{name[:14]:>14}" for name in outside))
    for name, score in {"log p(x)": lambda v: -model.energy(v), "Mahalanobis": mahalanobis}.items():
        row = _aurocs([score(v) for v in (rows, *outside.values())])
        print(f"  {name:26}" + " ".join(f"{v:14.3f}" for v in row), flush=True)


def _aurocs(values):
    """The AUROC of the first part of `values` against each of the others."""
    inside, *others = values
    return [
        roc_auc_score(np.repeat([1, 0], [len(inside), len(other)]), [*inside, *other])
        for other in others
    ]


def _head(kind, encoder, classifier, x):
    """Dense layers, or such that begin with the predictions of the classifier."""
    if kind == "mlp":
        return backbones.mlp(encoder.output_shape[1:], classifier.output_shape[1])
    rows = (network.predict(x, batch_size=256, verbose=0) for network in (encoder, classifier))
    return backbones.classifier_head(*rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("classifier", help="run directory of a classifier")
    parser.add_argument("--data-dir")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--units", type=int, default=128)
    parser.add_argument("--head", choices=("classifier_head", "mlp"), default="classifier_head")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--ood", nargs="+", default=["noise", "constant", "interpolations"])
    arguments = parser.parse_args()
    data = run_directory.load_data(arguments.classifier, arguments.data_dir)
    (x, y), validation = data.arrays("train"), data.arrays("validation")
    sets = {
        name: ood_sets.load(name, data, 2000, data_dir=arguments.data_dir, resize=True)
        for name in arguments.ood
    }
    classifier = without_softmax(load_classifier(arguments.classifier))
    plain = jem_tf.JEM(classifier, objective="cross_entropy", seed=0)
    plain.adapt(x)
    plain.fit_detector(*validation, reference=(x, y))
    print("classifier")
    measure(plain, data, sets)
    for seed in range(arguments.seeds):
        begin = time.monotonic()
        keras.utils.set_random_seed(seed)
        features = keras.Model(classifier.inputs[0], classifier.layers[-2].output)
        encoder = backbones.whitened(features, x, arguments.units)

        def train(objective, seed=seed, encoder=encoder):
            head = _head(arguments.head, encoder, classifier, x)
            options = {"objective": objective, "input_noise": 0.02, "seed": seed}
            model = jem_tf.JEM(head, encoder=encoder, **options)
            optimizer = keras.optimizers.Adam(1e-3, clipnorm=1.0, use_ema=True, ema_momentum=0.99)
            model.compile(optimizer)
            return model, model.fit(x, y, batch_size=256, epochs=arguments.epochs, verbose=0)

        model, history = train("joint")
        logs = history.history
        print(f"JEM on features, seed {seed}: {time.monotonic() - begin:.0f} s", end="")
        print(f", gap {logs['gap'][-1]:.2f} nats, trusted {logs['trusted'][-1]:.3f}")
        model.fit_detector(*validation, reference=(x, y))
        measure(model, data, sets)
        measure_density(model, data, sets)
        print("the same head without density")
        print_calibration(train("cross_entropy")[0], data)


if __name__ == "__main__":
    main()
