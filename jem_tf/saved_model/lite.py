"""An export as a LiteRT (TFLite) model, for phones: operators that LiteRT has built in only.

Not here: what the signatures compute (`signatures.py`).
"""

import re
import tempfile
from typing import Any

import tensorflow as tf

from jem_tf.portable import portable

CONVERTED = ("serving_default", "logits", "energy")  # others loop, draw numbers or decode files


def convert(signatures: Any) -> bytes:
    """The content of a `.tflite` file with the signatures `CONVERTED`.

    Raises `ValueError` that names the operators of the network which LiteRT does not have.
    """
    with portable():
        functions = signatures.trace(with_chains=False)
    root = tf.Module()
    root.state, root.encoder = signatures.variables, signatures.model.encoder
    with tempfile.TemporaryDirectory() as directory:
        chosen = {name: functions[name] for name in CONVERTED}
        tf.saved_model.save(root, directory, signatures=chosen)
        converter = tf.lite.TFLiteConverter.from_saved_model(directory, signature_keys=[*chosen])
        try:
            return converter.convert()
        except Exception as error:  # its class is not public
            found = re.search(r"TF Select ops: (.*)", str(error))
            reason = f"the operators {found[1]}" if found else str(error).splitlines()[0]
            raise ValueError(f"LiteRT cannot run this model, because of {reason}.") from error
