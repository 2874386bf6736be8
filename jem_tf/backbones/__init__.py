"""Networks from inputs to logits: functions that return a plain Keras model.

Not here: JEM itself.
"""

from jem_tf.backbones.classifier_head import classifier_head
from jem_tf.backbones.latent import LatentDense
from jem_tf.backbones.plain import convnet, mlp
from jem_tf.backbones.resnet import resnet
from jem_tf.backbones.whitened import whitened
from jem_tf.backbones.wide_resnet import wide_resnet

__all__ = [
    "LatentDense",
    "classifier_head",
    "convnet",
    "mlp",
    "resnet",
    "whitened",
    "wide_resnet",
]
