"""Turn a trained classifier into a JEM, and keep its accuracy.

python examples/convert_classifier.py
"""

import keras
from sklearn.metrics import roc_auc_score

import jem_tf
from jem_tf import backbones, data
from jem_tf.data import ood_sets

digits = data.load("digits")
x, y = digits.arrays("train")
x_test, y_test = digits.arrays("test")

# A classifier as you may have it: trained with cross-entropy, ending in softmax.
network = backbones.convnet(digits.shape, 10, width=16)
classifier = keras.Sequential([network, keras.layers.Softmax()])
classifier.compile("adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
classifier.fit(x, y, batch_size=64, epochs=15, verbose=0)

patches = ood_sets.load("patches", digits, len(x_test))


def report(name: str, model: jem_tf.JEM) -> None:
    accuracy = (model.predict(x_test, verbose=0).argmax(1) == y_test).mean()
    scores = [*model.ood_score(x_test), *model.ood_score(patches)]
    auroc = roc_auc_score([1] * len(x_test) + [0] * len(patches), scores)
    print(f"{name}: accuracy {accuracy:.3f}, AUROC against natural patches {auroc:.3f}")


# The layers before the softmax are a JEM that has not learned its density.
model = jem_tf.JEM.from_classifier(classifier, sampler=jem_tf.SGLD(steps=10))
model.adapt(x)
report("classifier", model)

# A few epochs at a low learning rate train the density.
model.compile(
    keras.optimizers.Adam(5e-4, clipnorm=1.0, use_ema=True, ema_momentum=0.98),
    metrics=["accuracy"],
)
model.fit(x, y, batch_size=64, epochs=30, verbose=2)
report("JEM", model)
