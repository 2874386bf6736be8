"""Likelihood models in `.npz` files: the settings as JSON, and arrays; no pickled objects.

Not here: run directories (`training/likelihood.py`).
"""

import json
from pathlib import Path

import numpy as np

from jem_tf.likelihood.base import LikelihoodModel
from jem_tf.likelihood.glow import Glow
from jem_tf.likelihood.pixelcnn import PixelCNN

MODELS: dict[str, type[LikelihoodModel]] = {"glow": Glow, "pixelcnn": PixelCNN}
MODEL_FILE = "model.npz"


def load(path: str | Path) -> LikelihoodModel:
    """Load the model that `save` wrote to an `.npz` file, or that of a run directory.

    ```python
    glow.save("glow.npz")
    likelihood.load("glow.npz").log_density(x)
    ```
    """
    path = Path(path)
    file = path / MODEL_FILE if path.is_dir() else path
    if not file.is_file():
        raise ValueError(f"There is no trained likelihood model at {str(file)!r}.")
    with np.load(file, allow_pickle=False) as store:
        name, config = json.loads(str(store["config"]))
        model = MODELS[name.lower()].from_config(config)
        model.load_own_variables({k: store[k] for k in store.files if k != "config"})
    return model
