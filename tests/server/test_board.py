"""Every query of the Grafana board and the alerts is answered, by a real Prometheus where it is."""

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

from .asking import ones
from .conftest import free_ports
from .test_gateway import write_judge

MONITORING = Path(__file__).parents[2] / "serving" / "monitoring"
SIGNS = np.array([[1], [-1], [-1], [-1]], np.float32)
needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="needs prometheus (apt-get install prometheus)"
)


def queries():
    board = json.loads((MONITORING / "grafana" / "board.json").read_text())
    rules = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"][0]["rules"]
    shown = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    alerts = [rule["expr"] for rule in rules]
    return shown, alerts


@pytest.fixture(scope="module")
def asked(serve, tmp_path_factory):
    """A server that has judged three rows in four out of distribution."""
    base = tmp_path_factory.mktemp("judge")
    write_judge(base)
    served = serve(model_name="judge", model_base_path=str(base))
    served.address = f"127.0.0.1:{served.server.options.port}"
    judged(served)
    return served


def judged(served):
    with JEMClient(served.address, "judge") as client:
        client.call("serving_default", inputs=ones(4, 2) * SIGNS)


def test_every_metric_of_the_board_is_there(asked):
    page = asked.rest.get("/monitoring/prometheus/metrics").text
    shown, alerts = queries()
    for query in shown + alerts:
        names = re.findall(r"(?:jem_tf|:tensorflow):[\w:]+", query)
        assert names and all(f"\n{name}{{" in page for name in names), query


@needs_prometheus
def test_prometheus_answers_the_queries(asked, tmp_path):
    """The OOD rate in its words is the share that was sent, 3 of 4."""
    config = yaml.safe_load((MONITORING / "prometheus.yaml").read_text())
    (job,) = config["scrape_configs"]
    job["static_configs"][0]["targets"] = [f"127.0.0.1:{asked.server.options.rest_api_port}"]
    job["scrape_interval"] = "1s"
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(config))
    shutil.copy(MONITORING / "alerts.yaml", tmp_path)
    (port,) = free_ports(1)
    flags = [f"--config.file={tmp_path}/prometheus.yaml", f"--storage.tsdb.path={tmp_path}/data"]
    log = (tmp_path / "log").open("w")
    process = subprocess.Popen(
        ["prometheus", *flags, f"--web.listen-address=127.0.0.1:{port}"], stderr=log
    )
    shown, alerts = queries()
    try:
        deadline, answered = time.monotonic() + 60, {}
        while len(answered) < len(shown) and time.monotonic() < deadline:
            assert process.poll() is None, (tmp_path / "log").read_text()
            judged(asked)
            time.sleep(0.5)
            for query in shown:
                answer = ask(port, query)
                if any(row["value"][1] != "NaN" for row in answer):
                    answered[query] = answer
        assert answered.keys() == set(shown)
        for query, answer in answered.items():
            if "ood_rows" in query:
                share = float(answer[0]["value"][1])  # a look may fall between two counts
                assert share == pytest.approx(0.75, abs=0.1)
        assert ask(port, alerts[0]) and not ask(port, alerts[1])  # nothing failed
    finally:
        process.kill()


def ask(port, query):
    query = query.replace("$__rate_interval", "10s").replace("$model", ".*")
    try:
        answer = httpx.get(f"http://127.0.0.1:{port}/api/v1/query", params={"query": query})
    except httpx.TransportError:
        return []
    if answer.status_code == 503:
        return []
    assert answer.status_code == 200, answer.text
    return answer.json()["data"]["result"]
