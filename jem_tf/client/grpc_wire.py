"""The client over gRPC."""

from collections.abc import Callable
from typing import Any

from jem_tf.client.wire import INIT_SIGNATURE, Arrays, Signature, Wire, WireError, to_shape

MAX_MESSAGE_BYTES = 2**28


def channel_options() -> list[tuple[str, Any]]:
    """Return the options of a channel: large messages, and calls to all addresses in turn."""
    sizes = [(f"grpc.max_{way}_message_length", MAX_MESSAGE_BYTES) for way in ("send", "receive")]
    return [*sizes, ("grpc.lb_policy_name", "round_robin")]


class GrpcWire(Wire):
    """Calls TF Serving's `PredictionService` and `ModelService`."""

    def connect(self, scheme: str, host: str, tls: dict[str, bytes | None]) -> None:
        import grpc
        from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc

        if scheme == "grpc":
            self._channel = grpc.insecure_channel(host, channel_options())
        else:
            credentials = grpc.ssl_channel_credentials(tls["ca"], tls["key"], tls["certificate"])
            self._channel = grpc.secure_channel(host, credentials, channel_options())
        self._prediction_service = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        self._model_service = model_service_pb2_grpc.ModelServiceStub(self._channel)

    def call(
        self,
        signature: str,
        inputs: Arrays,
        seconds: float,
        get_signatures: Callable[[bool], dict[str, Signature]],
    ) -> Arrays:
        import tensorflow as tf
        from tensorflow_serving.apis import predict_pb2

        request = self._fill_model_spec(predict_pb2.PredictRequest())
        request.model_spec.signature_name = signature
        for name, value in inputs.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
        response = self._send(self._prediction_service.Predict, request, seconds)
        return {name: tf.make_ndarray(value) for name, value in response.outputs.items()}

    def signatures(self, seconds: float) -> dict[str, Signature]:
        from tensorflow_serving.apis import get_model_metadata_pb2

        request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
        method = self._prediction_service.GetModelMetadata
        response = self._send(method, self._fill_model_spec(request), seconds)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        response.metadata["signature_def"].Unpack(signatures)
        return {
            name: Signature(_types_and_shapes(s.inputs), _types_and_shapes(s.outputs))
            for name, s in signatures.signature_def.items()
            if name != INIT_SIGNATURE
        }

    def status(self, seconds: float) -> dict[int, str]:
        from tensorflow_serving.apis import get_model_status_pb2

        request = self._fill_model_spec(get_model_status_pb2.GetModelStatusRequest())
        response = self._send(self._model_service.GetModelStatus, request, seconds)
        state_name = get_model_status_pb2.ModelVersionStatus.State.Name
        return {row.version: state_name(row.state) for row in response.model_version_status}

    def close(self) -> None:
        self._channel.close()

    def _fill_model_spec(self, request: Any) -> Any:
        request.model_spec.name = self.model
        if self.version is not None:
            request.model_spec.version.value = self.version
        if self.label is not None:
            request.model_spec.version_label = self.label
        return request

    def _send(self, method: Any, request: Any, seconds: float) -> Any:
        import grpc

        try:
            return method(request, timeout=max(seconds, 1e-3))
        except grpc.RpcError as error:
            call: Any = error
            raise WireError(call.code().name, call.details() or "") from error


def _types_and_shapes(infos: Any) -> dict[str, Any]:
    import tensorflow as tf

    return {
        name: (
            tf.as_dtype(info.dtype).name,
            to_shape(info.tensor_shape.unknown_rank, [d.size for d in info.tensor_shape.dim]),
        )
        for name, info in infos.items()
    }
