"""Pictures of the chains during training: the loss does not show what samples look like."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jem_tf import pictures
from jem_tf._tf.state import replica_components


class SampleGrid(keras.callbacks.Callback):
    """Draws chains of the buffer of a `JEM` at the end of epochs.

    ```python
    model.fit(x, y, callbacks=[SampleGrid("chains", every=5, tensorboard="logs")])
    ```

    Args:
        directory: of the PNG files, `epoch-0005.png` and so on.
        every: epochs between two of them.
        count: chains in a picture.
        tensorboard: a directory of TensorBoard logs to which the pictures are written as well.
    """

    def __init__(
        self,
        directory: str | Path,
        every: int = 1,
        count: int = 100,
        tensorboard: str | Path | None = None,
    ):
        super().__init__()
        if min(every, count) < 1:
            raise ValueError(
                f"`every` and `count` must be positive. Received: {every=!r}, {count=!r}"
            )
        self.directory, self.every, self.count = Path(directory), every, count
        writer = tf.summary.create_file_writer
        self._writer = None if tensorboard is None else writer(str(tensorboard))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if (epoch + 1) % self.every:
            return
        low, high = self.model.input_range.numpy()
        if low.ndim != 3:
            raise ValueError(f"Only images can be drawn. The inputs have shape {low.shape}.")
        chains = replica_components(self.model.buffer["chains"])[0][: self.count].numpy()
        images = (chains - low) * (2.0 / np.maximum(high - low, 1e-6)) - 1.0
        self.directory.mkdir(parents=True, exist_ok=True)
        pictures.save_grid(images, 10, self.directory / f"epoch-{epoch + 1:04d}.png")
        if self._writer is not None:
            pixels = np.asarray(pictures.grid(images, 10))
            with self._writer.as_default():
                tf.summary.image("chains", pixels.reshape(1, *pixels.shape[:2], -1), epoch + 1)
