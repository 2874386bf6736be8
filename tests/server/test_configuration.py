"""Settings in files: what is read, and how errors in them are reported."""

import pytest

from jem_tf.server import Options, configuration

INVALID_FILES = {
    "batching_parameters_file": {
        "max_batch_size: 3": "not a valid BatchingParameters",
        "max_batch_size { value: 0 }": "max_batch_size in .* must be at least 1: 0",
        "max_batch_size { value: 8 } allowed_batch_sizes: 4": "end with max_batch_size 8",
        "pad_variable_length_inputs: true": "is not supported",
    },
    "monitoring_config_file": {
        "prometheus_config { enabled: true }": "not a valid MonitoringConfig"
    },
    "ssl_config_file": {"server_key: 'a'": "server_key and server_cert"},
    "model_config_file": {
        "model_config_list {": "not a valid ModelServerConfig",
        "": "must hold a model_config_list",
        "model_config_list { config { name: 'a' } }": "name and a base_path",
        "model_config_list { config { name: 'a' base_path: '/a' model_platform: 'other' } }": (
            "unsupported platform other"
        ),
    },
}
READERS = {
    "batching_parameters_file": configuration.read_batching,
    "monitoring_config_file": configuration.read_metrics_path,
    "ssl_config_file": configuration.read_tls,
    "model_config_file": configuration.read_model_config,
}


@pytest.mark.parametrize(
    "flag, text, message",
    [(flag, text, m) for flag, cases in INVALID_FILES.items() for text, m in cases.items()],
)
def test_an_invalid_file_is_reported(flag, text, message, tmp_path):
    file = tmp_path / "config"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        READERS[flag](Options(**{flag: str(file)}, enable_batching=True))


def test_the_metrics_path_comes_from_the_monitoring_file(tmp_path):
    file = tmp_path / "config"
    file.write_text('prometheus_config { enable: true path: "/metrics" }')
    options = Options(monitoring_config_file=str(file))
    assert configuration.read_metrics_path(options) == "/metrics"
    file.write_text("")
    assert configuration.read_metrics_path(options) is None


def test_batching_is_off_by_default(tmp_path):
    file = tmp_path / "config"
    file.write_text("")
    with pytest.raises(ValueError, match="needs --enable-batching"):
        configuration.read_batching(Options(batching_parameters_file=str(file)))
    assert configuration.read_batching(Options()) is None
