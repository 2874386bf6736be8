"""Which score an export flags inputs by: the one that recognises outliers made from the data.

Not here: the scores (`energy.py`), the threshold (`threshold.py`).

No score is right for every model. The gradient norm is good for cold chains and log p(x) for warm
ones. For a plain classifier the gradient norm points the wrong way. So the choice is made for each
model, without any real out-of-distribution data.
"""

from collections.abc import Callable

import numpy as np

from jem_tf.energy import OOD_SCORES

MAX_ROWS = 1000  # of the data, and of each kind of outliers


def made_up_outliers(x: np.ndarray, seed: int = 0) -> dict[str, np.ndarray]:
    """Outliers in the range of `x` `[n, ...]`, as many rows: uniform noise, rows at one level of
    their range, and rows whose features come from different rows."""
    rng = np.random.default_rng(seed)
    low, width = x.min(0), np.ptp(x, 0)
    flat = x.reshape(len(x), -1)
    shuffled = rng.permuted(flat, axis=0).reshape(x.shape)
    level = rng.uniform(size=(len(x), *[1] * (x.ndim - 1)))
    made_up = {"noise": low + width * rng.uniform(size=x.shape), "constants": low + width * level}
    return {name: v.astype(x.dtype) for name, v in {**made_up, "shuffled": shuffled}.items()}


def choose_score(
    score: Callable[[np.ndarray, str], np.ndarray], x: np.ndarray
) -> tuple[str, dict[str, dict[str, float]]]:
    """Return the kind of score whose worst AUROC against made-up outliers is largest.

    ```python
    kind, aurocs = choose_score(model.ood_score, x_validation)
    ```

    Args:
        score: from rows and one of `OOD_SCORES` to scores, such as `model.ood_score`.
        x: rows like the training data, that the model was not trained on.

    Returns:
        The kind, and the AUROC of each kind against each set. Non-finite scores count as outliers.
    """
    from sklearn.metrics import roc_auc_score

    x = x[:: -(-len(x) // MAX_ROWS)]
    sets = {"": x, **made_up_outliers(x)}
    labels = np.repeat([1, 0], len(x))
    aurocs: dict[str, dict[str, float]] = {}
    for kind in OOD_SCORES:
        scores = {name: score(rows, kind) for name, rows in sets.items()}
        ranked = {n: np.where(np.isfinite(s), s, -np.finfo("f4").max) for n, s in scores.items()}
        inside = ranked.pop("")
        aurocs[kind] = {
            n: float(roc_auc_score(labels, np.concatenate([inside, s]))) for n, s in ranked.items()
        }
    return max(aurocs, key=lambda kind: min(aurocs[kind].values())), aurocs
