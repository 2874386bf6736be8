"""The client over gRPC."""

from typing import Any

from jem_tf.client.wire import Arrays, Failed, Signature, Wire, shape_of

MESSAGE_BYTES = 2**28


class GrpcWire(Wire):
    """`PredictionService` and `ModelService`."""

    def connect(self, scheme: str, host: str, secrets: dict[str, bytes | None]) -> None:
        import grpc
        from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc

        size = [(f"grpc.max_{way}_message_length", MESSAGE_BYTES) for way in ("send", "receive")]
        if scheme == "grpc":
            self._channel = grpc.insecure_channel(host, size)
        else:
            made = grpc.ssl_channel_credentials(
                secrets["ca"], secrets["key"], secrets["certificate"]
            )
            self._channel = grpc.secure_channel(host, made, size)
        self._predictions = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        self._models = model_service_pb2_grpc.ModelServiceStub(self._channel)

    def call(self, signature: str, inputs: Arrays, seconds: float, client: Any) -> Arrays:
        import tensorflow as tf
        from tensorflow_serving.apis import predict_pb2

        request = self._specified(predict_pb2.PredictRequest())
        request.model_spec.signature_name = signature
        for name, value in inputs.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
        answer = self._send(self._predictions.Predict, request, seconds)
        return {name: tf.make_ndarray(value) for name, value in answer.outputs.items()}

    def signatures(self, seconds: float) -> dict[str, Signature]:
        import tensorflow as tf
        from tensorflow_serving.apis import get_model_metadata_pb2

        request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
        method = self._predictions.GetModelMetadata
        answer = self._send(method, self._specified(request), seconds)
        found = get_model_metadata_pb2.SignatureDefMap()
        answer.metadata["signature_def"].Unpack(found)

        def known(infos: Any) -> dict[str, Any]:
            return {
                name: (
                    tf.as_dtype(info.dtype).name,
                    shape_of(
                        info.tensor_shape.unknown_rank, [d.size for d in info.tensor_shape.dim]
                    ),
                )
                for name, info in infos.items()
            }

        return {
            name: Signature(known(s.inputs), known(s.outputs))
            for name, s in found.signature_def.items()
            if name != "__saved_model_init_op"
        }

    def status(self, seconds: float) -> dict[int, str]:
        from tensorflow_serving.apis import get_model_status_pb2

        request = self._specified(get_model_status_pb2.GetModelStatusRequest())
        answer = self._send(self._models.GetModelStatus, request, seconds)
        names = get_model_status_pb2.ModelVersionStatus.State.Name
        return {row.version: names(row.state) for row in answer.model_version_status}

    def close(self) -> None:
        self._channel.close()

    def _specified(self, request: Any) -> Any:
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
            raise Failed(call.code().name, call.details() or "") from error
