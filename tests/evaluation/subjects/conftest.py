"""One model in three forms: in this process, exported, and behind a gRPC endpoint."""

import threading
from concurrent import futures

import grpc
import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
)

import jem_tf


class MinimalServicer(prediction_service_pb2_grpc.PredictionServiceServicer):
    """The part of TF Serving's protocol that evaluation uses, for one model named "blobs"."""

    def __init__(self, path):
        self.path = str(path)
        self.signatures = tf.saved_model.load(self.path).signatures
        self.lock = threading.Lock()

    def GetModelMetadata(self, request, context):
        self.check(request.model_spec, context)
        from tensorflow.python.tools import saved_model_utils

        graph = saved_model_utils.get_meta_graph_def(self.path, "serve")
        signatures = get_model_metadata_pb2.SignatureDefMap(signature_def=graph.signature_def)
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.metadata["signature_def"].Pack(signatures)
        return response

    def Predict(self, request, context):
        self.check(request.model_spec, context)
        function = self.signatures[request.model_spec.signature_name]
        inputs = {k: tf.constant(tf.make_ndarray(v)) for k, v in request.inputs.items()}
        response = predict_pb2.PredictResponse()
        with self.lock:
            for key, value in function(**inputs).items():
                response.outputs[key].CopyFrom(tf.make_tensor_proto(value))
        return response

    def check(self, spec, context):
        if spec.name != "blobs" or spec.version.value not in (0, 1):
            context.abort(grpc.StatusCode.NOT_FOUND, f"Servable not found: {spec.name}")


@pytest.fixture(scope="session")
def blobs_data():
    """Three classes in the plane: x `[90, 2]`, y `[90]`."""
    y = np.arange(90) % 3
    x = np.random.default_rng(0).normal(size=(90, 2)) + 3 * y[:, None]
    return x.astype(np.float32), y


@pytest.fixture(scope="session")
def model(blobs_data):
    """A JEM that knows the range of the data; its random weights are enough for these tests."""
    keras.utils.set_random_seed(0)
    layers = [keras.Input((2,)), keras.layers.Dense(8, activation="silu"), keras.layers.Dense(3)]
    model = jem_tf.JEM(keras.Sequential(layers), sampler=jem_tf.SGLD(2), seed=0)
    model.adapt(*blobs_data)
    return model


@pytest.fixture(scope="session")
def exported(model, blobs_data, tmp_path_factory):
    """The model directory of the exported model."""
    directory = tmp_path_factory.mktemp("models") / "blobs"
    options = {"calibrate": blobs_data, "sample_steps": 5, "warmup_batches": (1,)}
    return jem_tf.export(model, directory, **options).parent


@pytest.fixture(scope="session")
def address(exported):
    """The address of a server of the exported model."""
    server = grpc.server(futures.ThreadPoolExecutor(2))
    servicer = MinimalServicer(exported / "1")
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"grpc://127.0.0.1:{port}"
    server.stop(None)
