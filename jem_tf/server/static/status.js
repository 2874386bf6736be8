// How the server does: versions, live traffic from the metrics page, what the export measured.

import { json, text } from "./api.js";
import { element, history, percent, reliability, table } from "./charts.js";

const EVERY = 2000; // milliseconds
const KEEP = 150; // points of the OOD rate
const find = (id) => document.getElementById(id);

/** The lines of a Prometheus page: `[{name, labels, value}]`. */
export function samples(page) {
  const found = [];
  for (const line of page.split("\n")) {
    const match = /^([\w:]+)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!match || line.startsWith("#")) continue;
    const labels = {};
    for (const [, key, value] of (match[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) {
      labels[key] = value.replace(/\\(.)/g, (_, c) => (c === "n" ? "\n" : c));
    }
    found.push({ name: match[1], labels, value: Number(match[3]) });
  }
  return found;
}

const sum = (page, name, model, wanted = () => true) => page
  .filter((s) => s.name === name && s.labels.model_name === model && wanted(s.labels))
  .reduce((total, s) => total + s.value, 0);

/** Requests so far, the latency's buckets, rows and verdicts. */
function counted(page, model) {
  const buckets = new Map();
  for (const { name, labels, value } of page) {
    if (name !== ":tensorflow:serving:request_latency_bucket" || labels.model_name !== model) continue;
    const limit = labels.le === "+Inf" ? Infinity : Number(labels.le);
    buckets.set(limit, (buckets.get(limit) ?? 0) + value);
  }
  return {
    time: performance.now(),
    requests: sum(page, ":tensorflow:serving:request_count", model),
    failed: sum(page, ":tensorflow:serving:request_count", model, (l) => l.status !== "OK"),
    runs: sum(page, "jem_tf:executed_batches", model),
    rows: sum(page, "jem_tf:executed_rows", model),
    scored: sum(page, "jem_tf:scored_rows", model),
    ood: sum(page, "jem_tf:ood_rows", model),
    buckets: [...buckets].sort((a, b) => a[0] - b[0]),
  };
}

/** The microseconds below which `share` of the requests between two pages were answered. */
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
  constructor(problem) {
    this.problem = problem;
    this.rates = [];
  }

  use(model, metrics) {
    Object.assign(this, { model, metrics, last: null, rates: [] });
    for (const id of ["versions", "live", "history", "measured"]) find(id).replaceChildren();
    if (model.facts) this.measured();
  }

  /** Look again and again while the tab is open. */
  open() {
    clearInterval(this.timer);
    this.timer = setInterval(() => this.look(), EVERY);
    this.look();
  }

  close() { clearInterval(this.timer); }

  async look() {
    if (this.looking) return;
    this.looking = true;
    const { model } = this;
    const { name } = model;
    try {
      const states = await json(`/v1/models/${encodeURIComponent(name)}`);
      const page = this.metrics && await text(this.metrics);
      if (model !== this.model) return;
      find("versions").replaceChildren(table(["Model", "Version", "State", "What is wrong"],
        states.model_version_status.map((v) =>
          [name, v.version, v.state, v.status.error_message]), "Versions"));
      if (page) this.live(counted(samples(page), name));
      else find("live").replaceChildren(element("div", { textContent: "The server's metrics are switched off." }));
      this.problem(null);
    } catch (error) {
      if (model === this.model) this.problem(error);
    } finally {
      this.looking = false;
    }
  }

  live(now) {
    const last = this.last?.requests <= now.requests ? this.last : null; // counters begin anew
    this.last = now;
    const seconds = last ? (now.time - last.time) / 1e3 : 1;
    const since = (key) => (last ? now[key] - last[key] : 0);
    const scored = since("scored");
    if (last) this.rates = [...this.rates, scored ? since("ood") / scored : null].slice(-KEEP);
    const from = last && since("requests") ? last.buckets : []; // nothing new: since the start
    const milliseconds = (share) => {
      const found = quantile(from, now.buckets, share);
      return found === null ? "–" : `${(found / 1e3).toFixed(1)} ms`;
    };
    const cards = [
      ["requests a second", (since("requests") / seconds).toFixed(1)],
      ["requests so far", `${now.requests}`],
      ["failed so far", `${now.failed}`],
      ["latency, p50", milliseconds(0.5)],
      ["latency, p99", milliseconds(0.99)],
      ["rows a batch", now.runs ? (now.rows / now.runs).toFixed(1) : "no batching"],
      ["out of distribution", now.scored ? percent(now.ood / now.scored) : "–"],
    ];
    find("live").replaceChildren(...cards.map(([name, value]) =>
      element("div", {}, element("b", { textContent: value }), name)));
    find("history").replaceChildren(
      element("h3", { textContent: `OOD rate, every ${EVERY / 1e3} s since this tab was opened` }),
      this.rates.some((rate) => rate !== null)
        ? history(this.rates, "Share of inputs out of distribution over time")
        : element("p", { textContent: "Nothing was judged since then." }));
  }

  measured() {
    const { facts } = this.model;
    const parts = [];
    const { test, auroc } = facts;
    if (test) {
      parts.push(element("div", {},
        element("h3", { textContent: `Calibration on ${test.rows} test rows` }),
        element("p", { textContent: `Accuracy ${percent(test.accuracy)}, calibration error (ECE) ${percent(test.ece)}, NLL ${test.nll.toFixed(3)} nats.` }),
        test.reliability ? reliability(test.reliability) : ""));
    }
    if (auroc) {
      const scores = Object.keys(Object.values(auroc)[0]);
      parts.push(element("div", {},
        element("h3", { textContent: "AUROC: telling test data from …" }),
        table(["", ...scores.map((s) => s.replace("_", " "))],
          Object.entries(auroc).map(([set, row]) => [set, ...scores.map((s) => row[s].toFixed(3))]),
          "AUROC of each score against each set")));
    }
    find("measured").replaceChildren(...(parts.length ? parts :
      [element("p", { textContent: "This export came without measurements: `jem-tf export RUN` makes them." })]));
  }
}
