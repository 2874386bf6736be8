"""Which models are configured: building and checking a `ModelServerConfig`.

Not here: loading them (`manager.py`), the file that holds the configuration (`configuration.py`).
"""

from typing import Any

from tensorflow_serving.config import model_server_config_pb2

from jem_tf.server.errors import RequestError, invalid
from jem_tf.server.protos import ModelServerConfig
from jem_tf.server.versions import Model


def single_model_config(name: str, base_path: str) -> Any:
    """Return the `ModelServerConfig` of one model."""
    config = ModelServerConfig()
    config.model_config_list.config.add(name=name, base_path=base_path, model_platform="tensorflow")
    return config


def models_by_name(config: Any) -> dict[str, Any]:
    """Return the models of a `ModelServerConfig`; raise `RequestError` if one is invalid."""
    if config.WhichOneof("config") != "model_config_list":
        raise invalid("ModelServerConfig must hold a model_config_list")
    models: dict[str, Any] = {}
    for model in config.model_config_list.config:
        if not model.name or not model.base_path:
            raise invalid(f"Every model needs a name and a base_path. Received: {model}")
        if model.name in models:
            raise invalid(f"Illegal to list model {model.name} multiple times in config list")
        if not model.base_path.startswith("/") and "://" not in model.base_path:
            raise invalid(
                f"Expected model {model.name} to have an absolute path or URI; got "
                f"base_path()={model.base_path}"
            )
        _check_platform(model)
        models[model.name] = model
    return models


def _check_platform(model: Any) -> None:
    if model.model_type:  # deprecated
        platform = model_server_config_pb2.ModelType.Name(model.model_type).lower()
    else:
        platform = model.model_platform
    if not platform:
        raise invalid(
            "Illegal setting neither ModelServerConfig::model_type (deprecated) nor "
            f'ModelServerConfig::model_platform. Add model_platform: "tensorflow" to {model.name}.'
        )
    if platform != "tensorflow":
        raise invalid(f"Model {model.name} requests unsupported platform {platform}")


def check_labels(name: str, config: Any, current: Model | None, unavailable: bool) -> None:
    """Raise `RequestError` if `config` labels a version that `current` does not have available.

    With `unavailable`, new labels may refer to any version; labels in use may not be moved to one.
    """
    available = {version.number for version in current.available} if current else set()
    labels = current.config.version_labels if current and current.config else {}
    for label, number in config.version_labels.items():
        is_allowed = unavailable and labels.get(label, number) == number
        if number not in available and not is_allowed:
            raise RequestError(
                "FAILED_PRECONDITION",
                f"Request to assign label to version {number} of model {name}, which is not "
                "currently available for inference",
            )


def select_versions(config: Any, paths: dict[int, str]) -> dict[int, str]:
    """Return those of the versions on disk that the version policy of a model selects."""
    policy = config.model_version_policy
    choice = policy.WhichOneof("policy_choice") or "latest"
    if choice == "specific":
        return {n: path for n, path in paths.items() if n in policy.specific.versions}
    if choice == "all":
        return paths
    count = policy.latest.num_versions or 1
    return {number: paths[number] for number in sorted(paths)[-count:]}
