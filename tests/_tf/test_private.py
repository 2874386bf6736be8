"""Private names of Keras and TensorFlow that `_tf/private.py` uses: each must still do its job.

A failure here means that an upgrade of Keras or TensorFlow changed something we depend on. The
message says what, and what depends on it.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from jem_tf._tf import private


@pytest.fixture(scope="module")
def functional():
    inputs = keras.Input((3,))
    return keras.Model(inputs, keras.layers.Dense(2)(keras.layers.Dropout(0.5)(inputs)))


def test_functional_is_the_class_of_functional_models(functional):
    assert type(functional) is private.Functional, (
        "keras.src.models.Functional is no longer the class of keras.Model(inputs, outputs): "
        "JEM cannot see the layers of a backbone"
    )
    assert private.is_layer_graph(functional)
    assert private.is_layer_graph(keras.Sequential([keras.layers.Dense(2)]))

    class Custom(keras.Model):
        pass

    assert not private.is_layer_graph(Custom())


def test_layers_of_images_have_one_base_class():
    layers = [keras.layers.Resizing(2, 2), keras.layers.RandomZoom(0.1), keras.layers.RandAugment()]
    message = "The layers that augment images no longer have one base class: what follows is hidden"
    assert all(isinstance(layer, private.ImageLayer) for layer in layers), message
    assert not isinstance(keras.layers.Rescaling(1.0), private.ImageLayer), message


def test_flatten_layers_lists_nested_layers(functional):
    outer = keras.Sequential([keras.Input((3,)), functional, keras.layers.ReLU()])
    names = {type(layer).__name__ for layer in private.flatten_layers(outer)}
    assert {"Dropout", "Dense", "ReLU"} <= names, (
        "Model._flatten_layers no longer lists layers inside models: batch norm and dropout inside "
        "a backbone would not be noticed"
    )


def test_a_symbolic_tensor_knows_its_layer_and_the_inputs_of_that_call(functional):
    inputs = keras.Input((3,))
    hidden = keras.layers.ReLU()(inputs)
    message = "KerasTensor._keras_history no longer leads to the inputs of a call: a softmax stays"
    layer, tensors = private.producer(functional(hidden))
    assert layer is functional and len(tensors) == 1 and tensors[0] is hidden, message


def test_layers_say_whether_they_take_a_training_argument():
    message = (
        "Layer._call_has_training_arg no longer says whether a layer acts differently in training: "
        "JEM decides by it whether one forward pass is enough"
    )
    assert private.takes_training_argument(keras.layers.Dropout(0.5)), message
    assert private.takes_training_argument(keras.layers.BatchNormalization()), message
    assert not private.takes_training_argument(keras.layers.ReLU()), message


def test_learning_rate_gives_the_schedule_itself():
    schedule = keras.optimizers.schedules.CosineDecay(1e-2, 10)
    message = "Optimizer._learning_rate is no longer what was set: the guard cannot cool schedules"
    assert private.learning_rate(keras.optimizers.Adam(schedule)) is schedule, message
    scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(schedule))
    assert private.learning_rate(scaled) is schedule, message
    rate = private.learning_rate(keras.optimizers.Adam(0.5))
    rate.assign(0.25)
    assert float(rate) == 0.25, message


def test_replica_component_can_be_assigned(mirrored):
    with mirrored.scope():
        variable = tf.Variable(
            [0.0],
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    @tf.function
    def assign():
        def run():
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            private.replica_component(variable).assign([tf.cast(replica + 1, tf.float32)])

        mirrored.run(run)

    assign()
    values = [float(v[0]) for v in variable.values]
    assert values == [1.0, 2.0], (
        "DistributedVariable._get no longer gives the component of a replica: replay buffers of "
        "replicas would be mixed up"
    )


class _Recorder(keras.callbacks.Callback):
    def __init__(self, first):
        super().__init__()
        self.first, self.epochs = first, []

    def on_train_begin(self, logs=None):
        private.set_initial_epoch(self.model, self.first)

    def on_epoch_begin(self, epoch, logs=None):
        self.epochs.append(epoch)


def test_initial_epoch_can_be_set_while_fit_begins():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    recorder = _Recorder(2)
    model.fit(np.ones((4, 1)), np.ones((4, 1)), epochs=4, verbose=0, callbacks=[recorder])
    assert recorder.epochs == [2, 3], (
        "Model._initial_epoch no longer decides where fit begins: Resume would repeat epochs"
    )


def test_compiled_metrics_can_be_built_from_a_batch():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse", metrics=["accuracy"])
    before = len([v for metric in model.metrics for v in metric.variables])
    private.build_compiled_metrics(model, (np.ones((4, 1)), np.ones((4, 2))))
    after = len([v for metric in model.metrics for v in metric.variables])
    assert after > before, (
        "Model._symbolic_build no longer creates the variables of metrics: Resume cannot restore "
        "the metrics of an interrupted epoch"
    )


def test_a_compiled_loss_is_noticed(make_model):
    with pytest.raises(ValueError, match="compile"):
        make_model(compiled=False).check_compiled()
    model = make_model()
    model.check_compiled()
    model.compile("adam", loss="mse")
    with pytest.raises(ValueError, match="JEM has its own loss"):
        model.check_compiled()


def test_the_loss_tracker_is_what_fit_shows(make_model):
    model = make_model()
    assert model.loss_tracker is model.metrics[0] and model.loss_tracker.name == "loss", (
        "Model._loss_tracker is no longer the metric called loss: fit would show a loss of 0"
    )


def test_the_multi_worker_hook_still_exists():
    assert callable(getattr(keras.Model, "_maybe_symbolic_build", None)), (
        "keras.Model._maybe_symbolic_build is gone: check whether keras issue 20585 is fixed, and "
        "remove the workaround in TrainableModel, or move it"
    )
