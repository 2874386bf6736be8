"""The client over gRPC."""

import json
from typing import Any

from jem_tf.client.wire import (
    INIT_SIGNATURE,
    Arrays,
    Exchange,
    Signature,
    Wire,
    WireError,
    to_shape,
)

MAX_MESSAGE_BYTES = 2**28
MAX_RETRIES = 4  # gRPC sends a call at most five times


def channel_options(retries: int = 0) -> list[tuple[str, Any]]:
    """Return the options of a channel.

    They allow large messages, send calls to all addresses in turn, and send a call again, with
    growing pauses, while the server is unavailable.
    """
    policy = {
        "maxAttempts": min(retries, MAX_RETRIES) + 1,
        "initialBackoff": "0.2s",
        "maxBackoff": "5s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE"],
    }
    config: dict[str, Any] = {"loadBalancingConfig": [{"round_robin": {}}]}
    if retries:
        config["methodConfig"] = [{"name": [{}], "retryPolicy": policy}]
    return [
        *((f"grpc.max_{way}_message_length", MAX_MESSAGE_BYTES) for way in ("send", "receive")),
        ("grpc.service_config", json.dumps(config)),
        ("grpc.enable_retries", int(retries > 0)),
        ("grpc.initial_reconnect_backoff_ms", 100),
    ]


class GrpcWire(Wire):
    """Calls TF Serving's `PredictionService` and `ModelService`; gRPC itself retries."""

    retries_itself = True

    def connect(self, is_async: bool) -> None:
        import grpc

        endpoint, options = self.endpoint, channel_options(self.endpoint.retries)
        module: Any = grpc.aio if is_async else grpc
        if endpoint.scheme == "grpc":
            self._channel = module.insecure_channel(endpoint.host, options)
        else:
            tls = endpoint.tls
            credentials = grpc.ssl_channel_credentials(tls["ca"], tls["key"], tls["certificate"])
            self._channel = module.secure_channel(endpoint.host, credentials, options)
        token = endpoint.token
        self._metadata = [("authorization", f"Bearer {token}")] if token else None

    def call(self, signature: str, inputs: Arrays) -> Exchange:
        import tensorflow as tf
        from tensorflow_serving.apis import predict_pb2

        request = self._fill_model_spec(predict_pb2.PredictRequest())
        request.model_spec.signature_name = signature
        for name, value in inputs.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(value))

        def parse(message: bytes, _: Any) -> Arrays:
            outputs = predict_pb2.PredictResponse.FromString(message).outputs
            return {name: tf.make_ndarray(value) for name, value in outputs.items()}

        return Exchange(("PredictionService/Predict", request), parse)

    def signatures(self) -> Exchange:
        from tensorflow_serving.apis import get_model_metadata_pb2 as protos

        request = protos.GetModelMetadataRequest(metadata_field=["signature_def"])

        def parse(message: bytes) -> dict[str, Signature]:
            response = protos.GetModelMetadataResponse.FromString(message)
            signatures = protos.SignatureDefMap()
            response.metadata["signature_def"].Unpack(signatures)
            return {
                name: Signature(_types_and_shapes(s.inputs), _types_and_shapes(s.outputs))
                for name, s in signatures.signature_def.items()
                if name != INIT_SIGNATURE
            }

        method = "PredictionService/GetModelMetadata"
        return Exchange((method, self._fill_model_spec(request)), parse)

    def status(self) -> Exchange:
        from tensorflow_serving.apis import get_model_status_pb2 as protos

        def parse(message: bytes) -> dict[int, str]:
            response = protos.GetModelStatusResponse.FromString(message)
            state_name = protos.ModelVersionStatus.State.Name
            return {row.version: state_name(row.state) for row in response.model_version_status}

        request = self._fill_model_spec(protos.GetModelStatusRequest())
        return Exchange(("ModelService/GetModelStatus", request), parse)

    def send(self, request: Any, seconds: float) -> bytes:
        import grpc

        try:
            return self._start(request, seconds)
        except grpc.RpcError as error:
            raise _wire_error(error) from error

    async def asend(self, request: Any, seconds: float) -> bytes:
        import grpc

        try:
            return await self._start(request, seconds)
        except grpc.RpcError as error:
            raise _wire_error(error) from error

    def close(self) -> Any:
        return self._channel.close()

    def _start(self, request: Any, seconds: float) -> Any:
        method, message = request
        call = self._channel.unary_unary(f"/tensorflow.serving.{method}")
        content = message.SerializeToString()
        return call(content, timeout=max(seconds, 1e-3), metadata=self._metadata)

    def _fill_model_spec(self, request: Any) -> Any:
        request.model_spec.name = self.endpoint.model
        if self.endpoint.version is not None:
            request.model_spec.version.value = self.endpoint.version
        if self.endpoint.label is not None:
            request.model_spec.version_label = self.endpoint.label
        return request


def _wire_error(error: Any) -> WireError:
    return WireError(error.code().name, error.details() or "")


def _types_and_shapes(infos: Any) -> dict[str, Any]:
    import tensorflow as tf

    return {
        name: (
            tf.as_dtype(info.dtype).name,
            to_shape(info.tensor_shape.unknown_rank, [d.size for d in info.tensor_shape.dim]),
        )
        for name, info in infos.items()
    }
