"""A table with categories: votes of 1996 by party, education, income and opinions.

    pip install statsmodels
    python examples/categories.py

The table is real (American National Election Studies) and comes with statsmodels. A raw input is a
row of numbers and of codes of categories. The encoder scales the numbers, turns codes into zeros
and ones, and keeps principal components. The density is that of their vectors.
"""

import keras
import numpy as np
import statsmodels.api as sm
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import jem_tf
from jem_tf import backbones

NUMBERS = ["age", "logpopul", "TVnews", "income"]
CATEGORIES = ["PID", "educ", "selfLR", "ClinLR", "DoleLR"]

keras.utils.set_random_seed(0)
table = sm.datasets.anes96.load_pandas().data.sample(frac=1, random_state=0)
rows = table[NUMBERS + CATEGORIES].to_numpy("float32")
votes = table["vote"].to_numpy("int64")  # 0 for Clinton, 1 for Dole
(x, x_val, x_test), (y, y_val, y_test) = (np.split(part, [500, 720]) for part in (rows, votes))

inputs = keras.Input((len(NUMBERS) + len(CATEGORIES),))
scale = keras.layers.Normalization()
scale.adapt(x[:, : len(NUMBERS)])
parts = [scale(inputs[:, : len(NUMBERS)])]
for column, name in enumerate(CATEGORIES, start=len(NUMBERS)):
    one_hot = keras.layers.IntegerLookup(output_mode="one_hot", name=name)  # 1 more for unknown
    one_hot.adapt(x[:, column].astype("int64"))
    parts.append(one_hot(keras.ops.cast(inputs[:, column : column + 1], "int64")))
encoder = keras.Model(inputs, keras.layers.Concatenate()(parts))
encoder = backbones.whitened(encoder, x, units=24)

head = backbones.mlp(encoder.output_shape[1:], 2, units=64, depth=2)
model = jem_tf.JEM(head, encoder=encoder, input_noise=0.05, seed=0)
model.compile(keras.optimizers.Adam(1e-3, clipnorm=1.0, use_ema=True, ema_momentum=0.99))
model.fit(x, y, batch_size=50, epochs=40, verbose=0)
model.fit_detector(x_val, y_val, reference=(x, y))

accuracy = (model.predict(x_test, verbose=0).argmax(1) == y_test).mean()
linear = LogisticRegression(max_iter=1000).fit(encoder.predict(x, verbose=0), y)
print(f"accuracy {accuracy:.3f} of {len(x_test)} voters")
print(f"logistic regression: {linear.score(encoder.predict(x_test, verbose=0), y_test):.3f}")

unknown = x_test.copy()
unknown[:, len(NUMBERS)] = 99  # a party that is not in the training data
rng = np.random.default_rng(0)
mixed = np.stack([rng.permutation(column) for column in x_test.T], axis=1)
for name, outside in {"an unknown party": unknown, "mixed-up voters": mixed}.items():
    scores = [*model.ood_score(x_test), *model.ood_score(outside)]
    auroc = roc_auc_score(np.repeat([1, 0], len(x_test)), scores)
    print(f"AUROC against {name}: {auroc:.3f}, flagged: {model.is_ood(outside).mean():.1%}")
print(f"flagged: {model.is_ood(x_test).mean():.1%} of the test rows")
version = jem_tf.export(
    model, "saved_models/votes", calibrate=(x_val, y_val), class_names=("Clinton", "Dole")
)
print(f"Wrote {version}: its inputs are rows of the table")
