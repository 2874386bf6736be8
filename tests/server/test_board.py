"""The queries of the Grafana board and the alerts have answers, from a real Prometheus as well."""

import json
import re
import shutil
import subprocess
import time
from pathlib import Path

import httpx
import numpy as np
import pytest
import yaml

from jem_tf.client import JEMClient

from .grpc_requests import ones
from .servers import free_ports

MONITORING = Path(__file__).parents[2] / "serving" / "monitoring"
SIGNS = np.array([[1], [-1], [-1], [-1]], np.float32)
needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="needs prometheus (apt-get install prometheus)"
)


def read_queries():
    """Return the queries of the board and those of the alerts."""
    board = json.loads((MONITORING / "grafana" / "board.json").read_text())
    rules = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"][0]["rules"]
    panels = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    return panels, {rule["alert"]: rule["expr"] for rule in rules}


def send_rows(server):
    """Send four rows, three of which are out of distribution."""
    with JEMClient(server.addresses["grpc"], "judge") as client:
        client.call("serving_default", inputs=ones(4, 2) * SIGNS)


def test_every_metric_of_the_board_exists(plain):
    send_rows(plain)
    page = plain.rest.get("/monitoring/prometheus/metrics").text
    panels, alerts = read_queries()
    for query in [*panels, *alerts.values()]:
        names = re.findall(r"(?:jem_tf|:tensorflow):[\w:]+", query)
        assert names or "up{" in query  # which Prometheus itself has for each server
        assert all(f"\n{name}{{" in page for name in names), query


@needs_prometheus
@pytest.mark.slow
def test_prometheus_answers_the_queries(plain, tmp_path):
    """The OOD rate is the share of OOD rows that were sent, 3 of 4."""
    config = yaml.safe_load((MONITORING / "prometheus.yaml").read_text())
    (job,) = config["scrape_configs"]
    job["static_configs"][0]["targets"] = [f"127.0.0.1:{plain.server.options.rest_api_port}"]
    job["scrape_interval"] = "1s"
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(config))
    shutil.copy(MONITORING / "alerts.yaml", tmp_path)
    (port,) = free_ports(1)
    flags = [f"--config.file={tmp_path}/prometheus.yaml", f"--storage.tsdb.path={tmp_path}/data"]
    log = (tmp_path / "log").open("w")
    process = subprocess.Popen(
        ["prometheus", *flags, f"--web.listen-address=127.0.0.1:{port}"], stderr=log
    )
    panels, alerts = read_queries()
    try:
        deadline, results = time.monotonic() + 60, {}
        while len(results) < len(panels) and time.monotonic() < deadline:
            assert process.poll() is None, (tmp_path / "log").read_text()
            send_rows(plain)
            time.sleep(0.5)
            for query in panels:
                rows = run_query(port, query)
                if any(row["value"][1] != "NaN" for row in rows):
                    results[query] = rows
        assert results.keys() == set(panels)
        for query, rows in results.items():
            if "ood_rows" in query:
                values = [float(row["value"][1]) for row in rows]
                (share,) = (value for value in values if value == value)  # NaN: of other models
                # A scrape may fall between two counts.
                assert share == pytest.approx(0.75, abs=0.1)
        fired = {name for name, query in alerts.items() if run_query(port, query)}
        assert "ManyInputsOutOfDistribution" in fired
        assert "NothingIsServed" not in fired
    finally:
        process.kill()


def run_query(port, query):
    query = query.replace("$__rate_interval", "10s").replace("$model", ".*")
    try:
        response = httpx.get(f"http://127.0.0.1:{port}/api/v1/query", params={"query": query})
    except httpx.TransportError:
        return []
    if response.status_code == 503:
        return []
    assert response.status_code == 200, response.text
    return response.json()["data"]["result"]
