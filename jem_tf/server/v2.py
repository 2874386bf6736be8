"""The Open Inference Protocol (V2) on the models of a `Service`, independent of the transport.

Not here: JSON (`v2_rest.py`), gRPC (`v2_grpc.py`). Requests take the same path as those of TF
Serving's protocol. V2 knows no signatures: the parameter `signature_name` of a request chooses one.
"""

from collections.abc import Collection
from contextlib import AbstractContextManager
from typing import Any

from jem_tf.saved_model import layout
from jem_tf.server.errors import RequestError
from jem_tf.server.servable import Arrays, Servable
from jem_tf.server.service import Service
from jem_tf.server.v2_tensors import datatype
from jem_tf.server.versions import AVAILABLE
from jem_tf.version import VERSION

PLATFORM = "tensorflow_savedmodel"
SERVER = {"name": "jem_tf", "version": VERSION, "extensions": ["binary_tensor_data"]}


class V2:
    """Answers V2 requests.

    ```python
    V2(service).infer("digits", "", "logits", {"inputs": x}, ())  # ("1", {"logits": ...})
    ```
    """

    def __init__(self, service: Service):
        self.service = service

    def is_ready(self, name: str = "", version: str = "") -> bool:
        """Return whether a model is available; without a name, whether all of them are."""
        if not name:
            return self.service.manager.ready
        try:
            with self._use(name, version):
                return True
        except RequestError:
            return False

    def metadata(self, name: str, version: str) -> dict[str, Any]:
        """Return what V2 says about a model: the tensors of its default signature."""
        with self._use(name, version) as servable:
            definition = servable.signature("")
            states = self.service.manager.status(name)
        numbers = sorted(v.number for v in states if v.state == AVAILABLE)
        return {
            "name": name,
            "versions": [str(number) for number in numbers],
            "platform": PLATFORM,
            "inputs": _describe(definition.inputs),
            "outputs": _describe(definition.outputs),
        }

    def infer(
        self, name: str, version: str, signature: str, inputs: Arrays, outputs: Collection[str]
    ) -> tuple[str, Arrays]:
        """Return the version that answers, and the outputs of a signature by name."""
        with self._use(name, version) as servable:
            results = self.service.run(servable, signature, inputs, outputs)
            return str(servable.version), results

    def _use(self, name: str, version: str) -> AbstractContextManager[Servable]:
        """Return the servable for a request; a version that is no number is a label."""
        if not (version.isascii() and version.isdigit()):
            return self.service.manager.use(name, None, version)
        return self.service.manager.use(name, min(int(version[:20]), layout.MAX_VERSION))


def _describe(infos: Any) -> list[dict[str, Any]]:
    return [
        {"name": name, "datatype": datatype(info.dtype), "shape": _shape(info.tensor_shape)}
        for name, info in sorted(infos.items())
    ]


def _shape(shape: Any) -> list[int]:
    return [-1] if shape.unknown_rank else [dim.size for dim in shape.dim]
