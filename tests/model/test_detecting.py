"""`fit_detector`, `is_ood` and the fused score: what they find, keep and refuse."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import jem_tf
from jem_tf import Detector
from jem_tf import energy as maths


def draw_images(n, seed):
    """Images of 8 x 8 pixels in two classes, with vertical and with horizontal stripes."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    stripes = np.sin(np.arange(8) * 1.5 + rng.uniform(0, 6, (n, 1)))
    x = np.where(y[:, None, None], stripes[:, None, :], stripes[:, :, None])
    return (x + 0.1 * rng.normal(size=x.shape))[..., None].astype("f4"), y


TRAIN, VALIDATION, TEST = (draw_images(n, seed) for seed, n in enumerate((600, 400, 1000)))
NOISE = np.random.default_rng(9).uniform(-1, 1, (300, 8, 8, 1)).astype("f4")


def make(**options):
    backbone = jem_tf.backbones.convnet((8, 8, 1), 2, width=4)
    model = jem_tf.JEM(backbone, objective="cross_entropy", seed=0, **options)
    model.compile(keras.optimizers.Adam(1e-2))
    return model


@pytest.fixture(scope="module")
def fitted():
    keras.utils.set_random_seed(0)
    model = make()
    model.fit(*TRAIN, batch_size=64, epochs=3, verbose=0)
    description = model.fit_detector(*VALIDATION, reference=TRAIN)
    return model, description


def test_a_plain_classifier_flags_outliers_and_few_others(fitted):
    """At 200 calibration rows the false alarm rate is 5 %, with a standard deviation of 1.5 %."""
    model, _ = fitted
    assert model.is_ood(TEST[0]).mean() < 0.05 + 3 * 0.015
    assert model.is_ood(NOISE).mean() > 0.95
    assert model.is_ood(np.full((5, 8, 8, 1), np.nan, "f4")).all()
    assert model.ood_score(TEST[0]).mean() > model.ood_score(NOISE).mean()


def test_the_description_names_what_is_used(fitted):
    model, description = fitted
    assert description["layers"] == list(model.detector.layer_names)
    assert set(description["weights"]) == set(model.detector.names)
    assert {"noise", "blends", "tiles"} <= set(description["outliers"])
    assert description["rows"] == 200 and description["bytes"] < 20e6


def test_kinds_are_the_statistics_of_the_detector(fitted):
    model, _ = fitted
    values = model.statistics(TEST[0][:50])
    for i, name in enumerate(model.detector.names):
        if name != "max_probability":  # the paper's score is not a logarithm
            np.testing.assert_allclose(
                model.ood_score(TEST[0][:50], name), values[:, i], rtol=1e-4, atol=1e-5
            )


def test_ascent_is_how_far_the_density_rises(fitted):
    model, _ = fitted
    x = TEST[0][:20]
    gradient = model.input_range.scale * maths.input_score(model.logits, tf.constant(x))
    norms = np.linalg.norm(np.reshape(gradient, [20, 64]), axis=1)
    step = 0.1 * np.sqrt(64) * gradient / norms[:, None, None, None]
    rise = model.energy(x) - model.energy(x + model.input_range.scale * step)
    np.testing.assert_allclose(model.ood_score(x, "ascent"), -rise, rtol=1e-3, atol=1e-4)
    assert rise.min() > 0


def test_answers_do_not_depend_on_the_batch_or_the_graph(fitted):
    model, _ = fitted
    x = TEST[0][:40]
    one_by_one = model.ood_score(x, batch_size=1)
    np.testing.assert_allclose(model.ood_score(x), one_by_one, rtol=1e-5, atol=1e-5)
    score, p = tf.function(lambda x: (model.ood_score(x), model.p_value(x)))(x)
    np.testing.assert_allclose(score, one_by_one, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(p, model.p_value(x), atol=1e-6)


def test_the_detector_is_saved_with_the_model(fitted, tmp_path):
    model, _ = fitted
    model.save(tmp_path / "model.keras")
    copy = jem_tf.load(tmp_path / "model.keras")
    assert copy.detector.fitted
    np.testing.assert_allclose(copy.ood_score(TEST[0]), model.ood_score(TEST[0]), atol=1e-5)
    np.testing.assert_array_equal(copy.is_ood(TEST[0]), model.is_ood(TEST[0]))


def test_a_detector_with_other_statistics_is_to_be_fitted_again(fitted):
    detector = fitted[0].detector
    arrays = {name: array[1:] for name, array in detector.arrays().items()}
    with pytest.warns(UserWarning, match="call `fit_detector` again"):
        assert detector.convert_saved(arrays) == {}


def test_a_rounded_detector_keeps_its_false_alarm_rate(fitted):
    """It is calibrated after rounding. Single verdicts near the threshold may differ."""
    model, _ = fitted
    other = jem_tf.JEM(model.backbone, objective="cross_entropy", seed=0)
    other.adapt(*TRAIN)
    other.detector.rounds = True
    other.fit_detector(*VALIDATION, reference=TRAIN)
    for name in ("bank_1", "whitening_1", "subspace_directions"):
        assert (other.detector.arrays()[name].view("u4") & 0xFFFF == 0).all()
    assert other.is_ood(TEST[0]).mean() < 0.05 + 3 * 0.015
    assert other.is_ood(NOISE).mean() > 0.95
    assert np.corrcoef(other.ood_score(NOISE), model.ood_score(NOISE))[0, 1] > 0.99


def test_the_split_depends_on_the_seed_only(fitted):
    model, _ = fitted
    keras.utils.set_random_seed(0)
    other = make()
    other.backbone.set_weights(model.backbone.get_weights())
    other.adapt(*TRAIN)
    other.fit_detector(*VALIDATION, reference=TRAIN)
    np.testing.assert_allclose(other.p_value(TEST[0]), model.p_value(TEST[0]), atol=1e-6)


def test_rates_hold_for_each_predicted_class():
    """100 calibration rows of each class: 5 % with a standard deviation of 2.2 %."""
    model = make(detector=Detector(per_class=True))
    model.fit(*TRAIN, batch_size=64, verbose=0)
    model.fit_detector(*VALIDATION, reference=TRAIN)
    flagged, predicted = model.is_ood(TEST[0]), model.predict(TEST[0], verbose=0).argmax(1)
    for k in range(2):
        assert flagged[predicted == k].mean() < 0.05 + 3 * 0.022


def test_without_a_reference_a_third_of_the_rows_is_one():
    model = make(detector=Detector(false_alarm_rate=0.1))
    model.fit(*TRAIN, batch_size=64, verbose=0)
    assert model.fit_detector(*VALIDATION)["rows"] == 134
    assert model.is_ood(NOISE).mean() > 0.9 > 0.25 > model.is_ood(TEST[0]).mean()


def test_models_without_readable_layers_use_logits_and_gradients():
    class Mine(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = jem_tf.backbones.mlp((2,), 2, units=8)

        def call(self, x, training=None):
            return self.inner(x, training=training)

    model = jem_tf.JEM(Mine(), objective="cross_entropy")
    x = np.random.default_rng(0).normal(size=(400, 2)).astype("f4")
    model.adapt(x)
    description = model.fit_detector(x, reference=x)
    assert description["layers"] == [] and set(description["weights"]) == {
        "log_density",
        "gradient_norm",
        "max_probability",
        "ascent",
    }
    assert model.is_ood(x).mean() < 0.1


def test_long_vectors_are_sketched():
    """Distances between sketches are those of the vectors, to 1 / sqrt(1024), 3 %, each."""
    from jem_tf.detection.features import MAX_UNITS, to_vectors

    x = np.random.default_rng(0).normal(size=(20, 5000)).astype("f4")
    sketches = to_vectors(x).numpy()
    assert sketches.shape == (20, MAX_UNITS)
    distances = [np.linalg.norm(rows[0] - rows[1:], axis=1) for rows in (sketches, x)]
    np.testing.assert_allclose(*distances, rtol=4 / np.sqrt(MAX_UNITS))


@pytest.mark.parametrize(
    ("detector", "rows", "message"),
    [
        (Detector(), 20, "needs 38 validation rows or more.* Received: 20 rows"),
        (Detector(false_alarm_rate=0.01), 100, "needs 198 validation rows"),
        (Detector(per_class=True), 60, "19 calibration rows of each predicted class"),
    ],
)
def test_too_few_rows_say_how_many_are_needed(detector, rows, message):
    model = make(detector=detector)
    model.adapt(*TRAIN)
    x, y = (v[:rows] for v in VALIDATION)
    with pytest.raises(ValueError, match=message):
        model.fit_detector(x, y, reference=TRAIN)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match=r"no layer 'conv2'\. Near names: conv2d"):
        make(detector=Detector(layers=("conv2",)))
    with pytest.raises(ValueError, match="false_alarm_rate=0"):
        Detector(false_alarm_rate=0)
    with pytest.raises(TypeError, match="detector=3"):
        make(detector=3)
    model = make()
    for method in (model.is_ood, model.p_value, lambda x: model.ood_score(x, "fused")):
        with pytest.raises(ValueError, match="call `fit_detector` first"):
            method(NOISE)


def test_a_layer_without_a_vector_is_refused():
    inputs = keras.Input((5, 3))
    last, *_ = keras.layers.LSTM(4, return_state=True, name="states")(inputs)
    backbone = keras.Model(inputs, keras.layers.Dense(2)(last))
    with pytest.raises(ValueError, match="layer 'states' cannot become a vector"):
        jem_tf.JEM(backbone, detector=Detector(layers=("states",)))


def test_non_finite_features_name_their_layer():
    backbone = keras.Sequential(
        [
            keras.Input((2,)),
            keras.layers.Lambda(lambda x: tf.math.log(x), name="logarithm"),
            keras.layers.Dense(2),
        ]
    )
    model = jem_tf.JEM(backbone, objective="cross_entropy")
    x = np.random.default_rng(0).normal(size=(200, 2)).astype("f4")
    with pytest.raises(ValueError, match="Layer 'logarithm' has non-finite outputs for"):
        model.fit_detector(x, reference=x)
