// The tab "Status": versions, live traffic from the metrics page, measurements of the export.

import { fetchJson, fetchText } from "./api.js";
import { element, history, percent, reliability, table } from "./charts.js";

const POLL_MS = 2000;
const MAX_POINTS = 150; // of the OOD rate over time
const find = (id) => document.getElementById(id);

/** Return the samples of a Prometheus page: `[{name, labels, value}]`. */
function parseMetrics(page) {
  const samples = [];
  for (const line of page.split("\n")) {
    const match = /^([\w:]+)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!match || line.startsWith("#")) continue;
    const labels = {};
    for (const [, key, value] of (match[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) {
      labels[key] = value.replace(/\\(.)/g, (_, c) => (c === "n" ? "\n" : c));
    }
    samples.push({ name: match[1], labels, value: Number(match[3]) });
  }
  return samples;
}

/** Return the counters of `model`, and the cumulative buckets of its latency. */
function summarize(samples, model) {
  const sum = (name, accepts = () => true) => samples
    .filter((s) => s.name === name && s.labels.model_name === model && accepts(s.labels))
    .reduce((total, s) => total + s.value, 0);
  const buckets = new Map();
  for (const { name, labels, value } of samples) {
    if (name !== ":tensorflow:serving:request_latency_bucket" || labels.model_name !== model) continue;
    const limit = labels.le === "+Inf" ? Infinity : Number(labels.le);
    buckets.set(limit, (buckets.get(limit) ?? 0) + value);
  }
  return {
    time: performance.now(),
    requests: sum(":tensorflow:serving:request_count"),
    failed: sum(":tensorflow:serving:request_count", (labels) => labels.status !== "OK"),
    runs: sum("jem_tf:executed_batches"),
    rows: sum("jem_tf:executed_rows"),
    scored: sum("jem_tf:scored_rows"),
    ood: sum("jem_tf:ood_rows"),
    buckets: [...buckets].sort((a, b) => a[0] - b[0]),
  };
}

/** Return a quantile, in microseconds, of the requests between two states of the buckets. */
function quantile(before, after, share) {
  const counts = after.map(([limit, n], i) => [limit, n - (before[i]?.[1] ?? 0)]);
  const total = counts.at(-1)?.[1] ?? 0;
  let last = [0, 0];
  for (const [limit, n] of counts) {
    if (total && n >= share * total) {
      if (limit === Infinity) return last[0];
      return last[0] + ((limit - last[0]) * (share * total - last[1])) / (n - last[1]);
    }
    last = [limit, n];
  }
  return null;
}

export class Status {
  constructor(showProblem) {
    this.showProblem = showProblem;
    this.rates = [];
  }

  selectModel(model, metricsPath) {
    Object.assign(this, { model, metricsPath, last: null, rates: [] });
    for (const id of ["versions", "live", "history", "measured"]) find(id).replaceChildren();
    if (model.facts) this.showMeasurements();
  }

  /** Poll the server while the tab is open. */
  open() {
    clearInterval(this.timer);
    this.timer = setInterval(() => this.poll(), POLL_MS);
    this.poll();
  }

  close() { clearInterval(this.timer); }

  async poll() {
    if (this.polling) return;
    this.polling = true;
    const { model } = this;
    const { name } = model;
    try {
      const states = await fetchJson(`/v1/models/${encodeURIComponent(name)}`);
      const page = this.metricsPath && await fetchText(this.metricsPath);
      if (model !== this.model) return;
      find("versions").replaceChildren(table(["Model", "Version", "State", "Error"],
        states.model_version_status.map((v) =>
          [name, v.version, v.state, v.status.error_message]), "Versions"));
      if (page) this.showTraffic(summarize(parseMetrics(page), name));
      else find("live").replaceChildren(element("div", { textContent: "The server's metrics are turned off." }));
      this.showProblem(null);
    } catch (error) {
      if (model === this.model) this.showProblem(error);
    } finally {
      this.polling = false;
    }
  }

  showTraffic(current) {
    // Counters that decrease are those of a server that was restarted.
    const last = this.last?.requests <= current.requests ? this.last : null;
    this.last = current;
    const seconds = last ? (current.time - last.time) / 1e3 : 1;
    const increase = (key) => (last ? current[key] - last[key] : 0);
    const scored = increase("scored");
    if (last) this.rates = [...this.rates, scored ? increase("ood") / scored : null].slice(-MAX_POINTS);
    const before = last && increase("requests") ? last.buckets : []; // no new requests: all so far
    const latency = (share) => {
      const micros = quantile(before, current.buckets, share);
      return micros === null ? "–" : `${(micros / 1e3).toFixed(1)} ms`;
    };
    const cards = [
      ["requests per second", (increase("requests") / seconds).toFixed(1)],
      ["requests so far", `${current.requests}`],
      ["failed so far", `${current.failed}`],
      ["latency, p50", latency(0.5)],
      ["latency, p99", latency(0.99)],
      ["rows per batch", current.runs ? (current.rows / current.runs).toFixed(1) : "no batching"],
      ["out of distribution", current.scored ? percent(current.ood / current.scored) : "–"],
    ];
    find("live").replaceChildren(...cards.map(([name, value]) =>
      element("div", {}, element("b", { textContent: value }), name)));
    find("history").replaceChildren(
      element("h3", { textContent: `OOD rate, every ${POLL_MS / 1e3} s since this tab was opened` }),
      this.rates.some((rate) => rate !== null)
        ? history(this.rates, "Share of inputs out of distribution over time")
        : element("p", { textContent: "No input was scored since then." }));
  }

  showMeasurements() {
    const { test, auroc } = this.model.facts;
    const parts = [];
    if (test) {
      const text = `Accuracy ${percent(test.accuracy)}, calibration error (ECE) ${percent(test.ece)}, `
        + `NLL ${test.nll.toFixed(3)} nats.`;
      parts.push(element("div", {},
        element("h3", { textContent: `Calibration on ${test.rows} test rows` }),
        element("p", { textContent: text }),
        test.reliability ? reliability(test.reliability) : ""));
    }
    if (auroc) {
      const scores = Object.keys(Object.values(auroc)[0]);
      parts.push(element("div", {},
        element("h3", { textContent: "AUROC: test data against …" }),
        table(["", ...scores.map((s) => s.replace("_", " "))],
          Object.entries(auroc).map(([set, row]) => [set, ...scores.map((s) => row[s].toFixed(3))]),
          "AUROC of each score against each set")));
    }
    find("measured").replaceChildren(...(parts.length ? parts :
      [element("p", { textContent: "This export has no measurements: `jem-tf export RUN` writes them." })]));
  }
}
