"""-log p(y | x): a plain classifier, to compare with."""

import keras

from jem_tf.objectives.objective import Objective


@keras.saving.register_keras_serializable("jem_tf")
class CrossEntropy(Objective):
    """No density is learned; energies and scores are those that any classifier has."""

    needs_labels = True
