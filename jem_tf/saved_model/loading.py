"""SavedModels whose operations come with another package.

Not here: what an export consists of (`layout.py`).
"""

import importlib
import os
from collections.abc import Collection
from typing import Any

import tensorflow as tf


def load_saved_model(path: str | os.PathLike[str], tags: Collection[str] | None = None) -> Any:
    """As `tf.saved_model.load`; for models of text the operations of TensorFlow Text are loaded.

    ```python
    load_saved_model("saved_models/digits/1").signatures["logits"]
    ```
    """
    try:
        return tf.saved_model.load(str(path), tags)
    except (FileNotFoundError, RuntimeError) as error:
        if "Op type not registered" not in str(error):
            raise
        try:
            importlib.import_module("tensorflow_text")
        except ImportError:
            name = str(error).split("'")[1]
            raise ValueError(
                f"{str(path)!r} needs the operation {name}, which TensorFlow does not have. If it "
                "is a model of text: pip install 'jem_tf[text]'"
            ) from None
        return tf.saved_model.load(str(path), tags)
