"""Warm-up records: requests that every signature answers."""

import tensorflow as tf


def test_records_are_answered_by_their_signatures(version, served):
    """For every batch size, as TF Serving replays them."""
    from tensorflow_serving.apis import prediction_log_pb2

    file = version / "assets.extra" / "tf_serving_warmup_requests"
    requests = set()
    for record in tf.data.TFRecordDataset(str(file)).as_numpy_iterator():
        request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
        assert request.model_spec.name == "images"
        name = request.model_spec.signature_name
        tensors = {k: tf.constant(tf.make_ndarray(v)) for k, v in request.inputs.items()}
        answer = served[name](**tensors)
        batch = next(iter(tensors.values())).shape[0]
        assert all(value.shape[0] == batch for value in answer.values())
        requests.add((name, batch))
    sizes = {name: (1,) if name == "sample" else (1, 2, 4, 8, 16, 32) for name in served}
    assert requests == {(name, batch) for name in served for batch in sizes[name]}
