"""Models of images with an exact likelihood, beside JEM: Glow and PixelCNN++."""

from jem_tf.likelihood.base import SCORES, LikelihoodModel
from jem_tf.likelihood.files import MODEL_FILE, MODELS, load
from jem_tf.likelihood.glow import Glow
from jem_tf.likelihood.pixelcnn import PixelCNN

__all__ = ["MODELS", "MODEL_FILE", "SCORES", "Glow", "LikelihoodModel", "PixelCNN", "load"]
