"""Five changed lines: your Keras classifier as a JEM.

python examples/wrap_your_model.py
"""

import keras
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

import jem_tf

images, labels = load_digits(return_X_y=True)
x = (images.reshape(-1, 8, 8, 1) / 8 - 1).astype("float32")
x_train, x_test, y_train, y_test = train_test_split(x, labels, test_size=0.2, random_state=0)

# Your network, without the softmax: it must end in logits.
backbone = keras.Sequential(
    [
        keras.Input((8, 8, 1)),
        keras.layers.Conv2D(32, 3, padding="same", activation="silu"),
        keras.layers.Conv2D(64, 3, padding="same", strides=2, activation="silu"),
        keras.layers.Flatten(),
        keras.layers.Dense(10),
    ]
)

model = jem_tf.JEM(backbone, sampler=jem_tf.SGLD(steps=10))
model.compile(  # no loss: JEM has its own. Averaged weights: its gradients are noisy
    keras.optimizers.Adam(1e-3, use_ema=True, ema_momentum=0.98), metrics=["accuracy"]
)
model.fit(x_train, y_train, batch_size=64, epochs=30, validation_data=(x_test, y_test), verbose=2)

noise = np.random.default_rng(0).uniform(-1, 1, x_test.shape).astype("float32")
scores = np.concatenate([model.ood_score(x_test), model.ood_score(noise)])
auroc = roc_auc_score(np.repeat([1, 0], len(x_test)), scores)
accuracy = (model.predict(x_test, verbose=0).argmax(1) == y_test).mean()
print(f"accuracy {accuracy:.3f}, AUROC of the gradient norm against noise {auroc:.3f}")
