"""Targets of `open_subject`: run directories, files, and errors for everything else."""

import keras
import numpy as np
import pytest
from scipy.special import logsumexp

from jem_tf import evaluation
from jem_tf.scoring.scorers import open_scorer


def test_a_directory_that_is_neither_a_run_nor_a_saved_model(tmp_path):
    with pytest.raises(ValueError, match=r"neither a run directory .* nor a SavedModel"):
        evaluation.open_subject(tmp_path)


def test_a_file_that_is_missing_or_not_a_model(tmp_path):
    with pytest.raises(ValueError, match=r"no trained model at '.*model\.keras'"):
        evaluation.open_subject(tmp_path / "model.keras")
    (tmp_path / "model.keras").write_text("text")
    with pytest.raises(ValueError, match=r"model\.keras' is not a model that Keras can load"):
        evaluation.open_subject(tmp_path / "model.keras")


def test_a_keras_file_has_the_scores_of_its_model(model, blobs_data, tmp_path):
    x, _ = blobs_data
    model.save(tmp_path / "jem.keras")
    model.backbone.save(tmp_path / "plain.keras")
    jem, plain = (evaluation.open_subject(tmp_path / f"{name}.keras") for name in ("jem", "plain"))
    assert jem.jem is not None and plain.jem is None
    scores = jem.scores(x)
    np.testing.assert_allclose(
        scores["gradient_norm"], model.ood_score(x, "gradient_norm"), rtol=1e-4
    )
    np.testing.assert_allclose(scores["logits"], plain.scores(x)["logits"], atol=1e-5)


def test_a_classifier_with_a_loss_of_its_own_is_opened_without_it(tmp_path):
    def total(_, logits):
        return keras.ops.sum(logits)

    plain = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    plain.compile("sgd", loss=total)
    plain.save(tmp_path / "plain.keras")
    x = np.ones((4, 2), np.float32)
    logits = plain.predict(x, verbose=0)
    scores = evaluation.open_subject(tmp_path / "plain.keras").scores(x)
    np.testing.assert_allclose(scores["logits"], logits, rtol=1e-5)
    energy = open_scorer(tmp_path / "plain.keras").score(x)["energy"]
    np.testing.assert_allclose(energy, -logsumexp(logits, axis=1), rtol=1e-5)
