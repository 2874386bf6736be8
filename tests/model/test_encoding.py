"""JEM on features: raw inputs everywhere, encoded once in `fit`; one model in files and exports."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import compile_for_tests

import jem_tf
from jem_tf.model.encoding import as_features

WORDS = ("sun", "sea", "tax", "law")


@keras.saving.register_keras_serializable("tests")
class Counter(keras.layers.Layer):
    """Counts the rows that pass through it."""

    def build(self, _):
        self.rows = self.add_weight(dtype="int32", initializer="zeros", trainable=False)

    def call(self, x):
        self.rows.assign_add(keras.ops.shape(x)[0])
        return x


def image_encoder():
    layers = [Counter(), keras.layers.Rescaling(1 / 255), keras.layers.Conv2D(3, 3)]
    ends = [keras.layers.BatchNormalization(), keras.layers.GlobalAveragePooling2D()]
    return keras.Sequential([keras.Input((6, 6, 1)), *layers, *ends])


def head(units=3, classes=2):
    layers = [keras.layers.Dense(16, activation="silu"), keras.layers.Dense(classes)]
    return keras.Sequential([keras.Input((units,)), *layers])


def make(encoder, **options):
    model = jem_tf.JEM(head(**options), sampler=jem_tf.SGLD(2), encoder=encoder, seed=0)
    compile_for_tests(model)
    return model


@pytest.fixture(scope="module")
def rows():
    y = np.arange(200) % 2
    x = np.random.default_rng(0).uniform(0, 120, (200, 6, 6, 1)) + 120 * y[:, None, None, None]
    return x.astype(np.float32), y


@pytest.fixture(scope="module")
def trained(rows):
    keras.utils.set_random_seed(0)
    model = make(image_encoder())
    model.fit(*rows, batch_size=50, epochs=3, validation_data=rows, verbose=0)
    return model


def test_rows_are_encoded_once_whatever_the_epochs(trained):
    encoder = trained.encoder
    assert int(encoder.layers[0].rows) == 400  # training and validation rows, for 3 epochs
    assert not encoder.trainable_variables and trained.trainable_variables


def test_every_method_takes_raw_inputs_or_their_vectors(trained, rows):
    x, y = rows
    vectors = trained.encode(x)
    expected = trained.encoder(x).numpy()
    np.testing.assert_allclose(vectors, expected, rtol=1e-4, atol=1e-5)
    logits = trained.backbone(expected).numpy()
    for given in (x, vectors, tf.data.Dataset.from_tensor_slices((x, y)).batch(70)):
        np.testing.assert_allclose(trained.predict(given, verbose=0), logits, rtol=1e-3, atol=1e-4)
        energy = -np.logaddexp.reduce(logits, axis=1)
        np.testing.assert_allclose(trained.energy(given), energy, rtol=1e-3, atol=1e-4)
    assert trained.evaluate(x, y, verbose=0, return_dict=True)["accuracy"] == pytest.approx(
        (logits.argmax(1) == y).mean(), abs=1e-6
    )
    assert trained.sample(4, label=1, steps=2).shape == (4, 3)
    assert trained.refine(x[:4], steps=1).shape == (4, 3)


def test_a_detector_is_fitted_to_raw_inputs_and_saved_with_the_model(trained, rows, tmp_path):
    x, y = rows
    trained.fit_detector(x, y)
    trained.save(tmp_path / "model.keras")
    loaded = jem_tf.load(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.is_ood(x), trained.is_ood(x))
    np.testing.assert_allclose(loaded.ood_score(x), trained.ood_score(x), rtol=1e-4, atol=1e-4)
    assert loaded.is_ood(255 - 2 * x).mean() > loaded.is_ood(x).mean()


def test_the_detector_reads_the_layers_of_the_encoder(trained, rows):
    """Mean and standard deviation of each channel, by NumPy; vectors alone do not say these."""
    x, y = rows
    trained.fit_detector(x, y)
    names = [layer.name for layer in trained.encoder.layers]
    assert trained.detector.layer_names[:2] == (names[1], names[3])
    outputs = keras.Model(trained.encoder.inputs[0], trained.encoder.layers[3].output)(x).numpy()
    expected = np.concatenate([outputs.mean((1, 2)), outputs.std((1, 2))], axis=1)
    np.testing.assert_allclose(trained.features(x)[:, 2:8], expected, rtol=1e-3, atol=1e-4)
    vectors = trained.encode(x)
    gradient_norm = trained.statistics(x)[:, trained.detector.names.index("gradient_norm")]
    np.testing.assert_allclose(
        gradient_norm, trained.ood_score(vectors, "gradient_norm"), rtol=1e-3, atol=1e-4
    )
    for method in (trained.is_ood, trained.ood_score, trained.statistics):
        with pytest.raises(ValueError, match=r"pass raw inputs of shape \(6, 6, 1\)"):
            method(vectors)


@pytest.mark.slow
def test_an_export_takes_images_and_their_files(trained, rows, tmp_path):
    x, y = rows
    path = jem_tf.export(
        trained, tmp_path / "m", (x, y), pixel_range=(0, 255), warmup_batches=(1,), sample_steps=2
    )
    served = tf.saved_model.load(str(path)).signatures
    assert {"gradient", "refine", "sample", "serving_default_bytes", "ood_score"} <= set(served)
    answers = served["serving_default"](inputs=tf.constant(x[:5]))
    np.testing.assert_allclose(answers["energy"], trained.energy(x[:5]), rtol=1e-3, atol=1e-4)
    assert served["gradient"](inputs=tf.constant(x[:5]))["gradient"].shape == (5, 6, 6, 1)
    files = tf.stack([tf.io.encode_png(tf.cast(row, tf.uint8)) for row in x[:2]])
    from_files = served["energy_bytes"](image_bytes=files)["energy"]
    np.testing.assert_allclose(from_files, trained.energy(np.floor(x[:2])), rtol=1e-3, atol=1e-3)
    samples = served["sample"](labels=tf.constant([0]), seeds=tf.constant([1]))["samples"]
    assert samples.shape == (1, 3)


def two_inputs():
    inputs = [keras.Input((2,), name="first"), keras.Input((1,), name="second")]
    return keras.Model(inputs, keras.layers.Concatenate()(inputs))


def text_encoder():
    vectorise = keras.layers.TextVectorization(output_mode="multi_hot", vocabulary=list(WORDS))
    return keras.Sequential([keras.Input((), dtype="string"), vectorise])


@pytest.mark.slow
def test_text_is_a_raw_input_from_fit_to_export(tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(120) % 2
    texts = np.array([" ".join(rng.choice(WORDS[:3] if label else WORDS[1:], 3)) for label in y])
    model = make(text_encoder(), units=5)
    model.fit(texts, y, batch_size=40, epochs=2, verbose=0)
    assert model.predict(["sun sea", "law law"], verbose=0).shape == (2, 2)
    model.fit_detector(texts, y)
    path = jem_tf.export(model, tmp_path / "m", (texts, y), warmup_batches=(1,), sample_steps=2)
    served = tf.saved_model.load(str(path)).signatures
    answers = served["serving_default"](inputs=tf.constant(texts[:7]))
    np.testing.assert_allclose(answers["energy"], model.energy(texts[:7]), rtol=1e-4, atol=1e-4)
    assert "gradient" not in served


def test_an_endless_stream_is_encoded_as_it_is_read(rows):
    x, y = rows
    stream = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(50)
    model = make(image_encoder())
    model.fit(iter(stream), steps_per_epoch=2, verbose=0)
    assert model.progress.number("step") == 2


def test_a_stream_of_unknown_length_is_read_once_for_all_epochs(trained, rows):
    """Such as filtered data sets and TFRecord files."""
    stream = tf.data.Dataset.from_tensor_slices(rows).filter(lambda _, y: y == 1).batch(50)
    assert int(stream.cardinality()) == tf.data.UNKNOWN_CARDINALITY
    x, y = trained.encode_data(stream)
    np.testing.assert_array_equal(x, trained.encode(rows[0][rows[1] == 1]))
    assert y.tolist() == [1] * 100
    with pytest.raises(ValueError, match="data set is empty"):
        trained.encode_data(stream.filter(lambda *_: False))


def test_marked_vectors_survive_slices():
    assert isinstance(as_features(np.eye(3))[[0, 2]][:1], type(as_features(np.eye(3))))


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        (lambda: keras.layers.Dense(3), "Sequential or functional"),
        (lambda: keras.Sequential([keras.Input((6, 6, 1)), keras.layers.Conv2D(3, 3)]), "vectors"),
        (lambda: keras.Sequential([keras.Input((4,)), keras.layers.Dense(5)]), r"\(3,\).*\(5,\)"),
        (two_inputs, r"one input tensor.*first \(None, 2\), second \(None, 1\)"),
    ],
)
def test_encoders_that_do_not_fit_raise(encoder, message):
    with pytest.raises((TypeError, ValueError), match=message):
        jem_tf.JEM(head(), encoder=encoder())
