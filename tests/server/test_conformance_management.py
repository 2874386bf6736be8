"""Management of models and versions as in TF Serving 2.20, on the embedded server.

Each test names the file below tensorflow_serving/ that it follows. A real TF Serving would need
access to the same directories, so these tests run on the embedded server only.
"""

import shutil

import pytest
from tensorflow_serving.apis import get_model_status_pb2

from jem_tf.server.errors import RequestError
from jem_tf.server.manager import Manager
from jem_tf.server.model_config import models_by_name
from jem_tf.server.protos import ModelServerConfig

from .servers import wait_until
from .test_manager import config_list, model, parse_config

AVAILABLE, END = "AVAILABLE", "END"


class Versions:
    """A manager of directories without SavedModels: `load` returns an object with `close`."""

    def __init__(self, base, text="", failures=0, **options):
        self.base, self.loads, self.failures = base, [], failures
        config = parse_config(config_list(f"{model('m', base)} {text}"))
        self.manager = Manager(config, self._load, **{"poll_seconds": 0, **options})
        self.manager.start()

    def _load(self, name, version, path):
        self.loads.append(version)
        if self.failures:
            self.failures -= 1
            raise RequestError("UNAVAILABLE", "not yet")
        return FakeServable(name)

    def states(self, name="m"):
        return {v.number: v.state for v in self.manager.status(name)}

    def reload(self, *models):
        self.manager.reload(parse_config(config_list(*models)))


class FakeServable:
    def __init__(self, name):
        self.name = name

    def close(self):
        pass


@pytest.fixture
def base(tmp_path):
    for version in (1, 2, 3):
        (tmp_path / "m" / str(version)).mkdir(parents=True)
    return tmp_path / "m"


def test_versions_that_are_all_removed_are_unloaded(base):
    """sources/storage_path/file_system_storage_path_source.cc then aspires to none."""
    served = Versions(base)
    assert served.states() == {3: AVAILABLE}
    for version in (1, 2, 3):
        (base / str(version)).rmdir()
    served.manager.refresh()
    assert served.states() == {3: END}


def test_a_base_path_that_disappears_changes_nothing(base):
    """sources/storage_path/file_system_storage_path_source.cc: a missing base path is an error."""
    served = Versions(base)
    shutil.rmtree(base)
    served.manager.refresh()
    assert served.states() == {3: AVAILABLE}


def test_a_policy_that_selects_no_version_on_disk_unloads_all(base):
    """sources/storage_path/file_system_storage_path_source.cc, specific versions not found."""
    served = Versions(base)
    served.reload(f"{model('m', base)} model_version_policy {{ specific {{ versions: 9 }} }}")
    assert served.states() == {3: END}


def test_the_old_version_stays_until_the_new_one_is_available(base):
    """core/availability_preserving_policy.h, the default policy."""
    served = Versions(base)
    served.failures = 1
    (base / "4").mkdir()
    served.manager.refresh()
    assert served.states() == {4: END, 3: AVAILABLE}


def test_a_model_that_is_removed_stays_in_the_status_as_end(base):
    """model_servers/server_core.cc tears models down; the state monitor keeps them."""
    served = Versions(base)
    other = base.parent / "other"
    (other / "1").mkdir(parents=True)
    served.reload(model("other", other))
    assert served.states() == {3: END} and served.states("other") == {1: AVAILABLE}
    assert served.manager.names == ["other"] and served.manager.ready
    with pytest.raises(RequestError, match="Servable not found"), served.manager.use("m"):
        pass
    served.reload(model("other", other), model("m", base))
    assert served.states() == {3: AVAILABLE}


def test_failed_loads_are_retried_without_polling(base):
    """util/retrier.h and --max_num_load_retries, which do not depend on polling."""
    served = Versions(base, failures=2, poll_seconds=0, retries=2, retry_seconds=0.05)
    wait_until(lambda: served.states() == {3: AVAILABLE}, seconds=5.0)
    assert served.loads == [3, 3, 3]
    served.manager.stop()


def test_retries_end(base):
    """util/retrier.h."""
    served = Versions(base, failures=9, poll_seconds=0, retries=1, retry_seconds=0.02)
    wait_until(lambda: len(served.loads) == 2, seconds=5.0)
    served.manager._stop.wait(0.2)
    assert served.loads == [3, 3] and served.states() == {3: END}
    served.manager.stop()


LABEL = 'version_labels {{ key: "{}" value: {} }}'.format


def test_labels_need_available_versions_also_at_the_start(base):
    """model_servers/server_core.cc, UpdateModelVersionLabelMap, runs before models are added."""
    with pytest.raises(ValueError, match=r"version 3 of model m.*--allow-version-labels"):
        Versions(base, LABEL("stable", 3))
    served = Versions(base)
    served.reload(f"{model('m', base)} {LABEL('stable', 3)}")
    with pytest.raises(RequestError, match="not currently available"):
        served.reload(f"{model('m', base)} {LABEL('stable', 2)}")


def test_new_labels_for_unavailable_versions_are_an_option(base):
    """model_servers/server_core.cc, allow_version_labels_for_unavailable_models."""
    served = Versions(base, LABEL("stable", 3), unavailable_labels=True)
    served.reload(f"{model('m', base)} {LABEL('stable', 3)} {LABEL('next', 7)}")
    with pytest.raises(RequestError, match="version 2 of model m"):
        served.reload(f"{model('m', base)} {LABEL('stable', 2)}")  # a label in use


INVALID_MODELS = {
    "name: 'a' base_path: 'a/b' model_platform: 'tensorflow'": "absolute path or URI; got base",
    "name: 'a' base_path: '/a'": "Illegal setting neither ModelServerConfig::model_type",
    "name: 'a' base_path: '/a' model_platform: 'caffe'": "unsupported platform caffe",
    "name: 'a' base_path: '/a' model_type: OTHER": "unsupported platform other",
}


@pytest.mark.parametrize("text", INVALID_MODELS)
def test_invalid_models_are_refused(text):
    """model_servers/server_core.cc, ValidateModelConfigList and GetPlatform."""
    with pytest.raises(RequestError, match=INVALID_MODELS[text]) as caught:
        models_by_name(parse_config(config_list(text)))
    assert caught.value.code == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    "text",
    [
        "name: 'a' base_path: '/a' model_type: TENSORFLOW",
        "name: 'a' base_path: 'gs://bucket/a' model_platform: 'tensorflow'",
    ],
)
def test_deprecated_types_and_uris_are_accepted(text):
    """model_servers/server_core.cc, ValidateModelConfigList and GetPlatform."""
    config = parse_config(config_list(text))
    assert isinstance(config, ModelServerConfig) and list(models_by_name(config)) == ["a"]


def test_status_over_grpc_and_rest(served):
    """model_servers/get_model_status_impl_test.cc."""
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "rules"
    (row,) = served.models.GetModelStatus(request).model_version_status
    (same,) = served.rest.get("/v1/models/rules").json()["model_version_status"]
    state = get_model_status_pb2.ModelVersionStatus.State.Name(row.state)
    assert (same["version"], same["state"]) == (str(row.version), state) == ("1", "AVAILABLE")
