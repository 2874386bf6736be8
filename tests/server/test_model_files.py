"""Models in file systems of TensorFlow, here in memory (ram://), as gs:// and s3:// are."""

import pytest
import tensorflow as tf

from jem_tf.server import model_files

from .grpc_requests import ones, predict_request
from .servers import wait_until


def copy(source, target):
    for file in source.rglob("*"):
        if file.is_file():
            place = f"{target}/{file.relative_to(source)}"
            tf.io.gfile.makedirs(place.rpartition("/")[0])
            tf.io.gfile.copy(str(file), place)


def test_a_model_is_served_from_another_file_system(rules, serve):
    base = "ram://models/rules"
    copy(rules / "1", f"{base}/1")
    client = serve(
        model_name="rules",
        model_base_path=base,
        file_system_poll_wait_seconds=0.1,
        load_retry_interval_micros=200_000,  # the server may look while files are copied
    )
    response = client.predictions.Predict(predict_request(x=ones(1, 2)))
    assert response.outputs["y"].float_val == [3.0]
    copy(rules / "1", f"{base}/2")
    status = "/v1/models/rules/versions/2"
    wait_until(lambda: "AVAILABLE" in client.rest.get(status).text)


def test_paths(tmp_path):
    assert model_files.absolute("gs://bucket/model") == "gs://bucket/model"
    assert model_files.absolute("model").startswith("/")
    assert model_files.join("gs://bucket/model/", "1", "a.json") == "gs://bucket/model/1/a.json"
    for name in ("1", "02", "x", "9" * 19, "³"):
        (tmp_path / name).mkdir()
    (tmp_path / "3").write_text("a file")
    assert sorted(model_files.versions(str(tmp_path))) == [1, 2]
    with pytest.raises(OSError, match="missing"):
        model_files.versions(str(tmp_path / "missing"))
    assert model_files.read_json(str(tmp_path / "3")) == {}
