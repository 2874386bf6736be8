// The page: chooses a model, sends inputs, shows answers. Views are in their own files.

import { call, Gone, json, nested, newest } from "./api.js";
import { bars, element, gauge, percent } from "./charts.js";
import * as dream from "./dream.js";
import { Drawing, paint, picture } from "./drawing.js";
import { Status } from "./status.js";
import { explain } from "./why.js";

const find = (id) => document.getElementById(id);
const TABS = ["try", "why", "dream", "status"];
const status = new Status((error) => problem(error));
let served = { models: [] };
let model = null; // {name, version, facts, examples, isImage}
let input = null; // the numbers that were asked about last
let quiet, settled;

function problem(error) {
  find("problem").hidden = !error;
  find("problem").textContent = error?.message ?? "";
  if (error instanceof Gone) {
    find("connection").textContent = "Not connected: trying again";
    find("problem").textContent = `${error.message} Start it with: jem-tf serve. This page goes on by itself.`;
    reconnect();
  }
}

function reconnect() {
  clearTimeout(quiet);
  quiet = setTimeout(async () => {
    try {
      await start();
    } catch (error) {
      problem(error);
    }
  }, 1000);
}

async function start() {
  const before = model?.name;
  served = await json("/inspector/models.json");
  problem(null);
  const names = served.models.map((m) => m.name);
  find("model").replaceChildren(...names.map((name) => element("option", { textContent: name })));
  if (!names.length) {
    find("connection").textContent = "Connected";
    throw new Gone("No model is ready yet.");
  }
  const index = Math.max(names.indexOf(before), 0);
  find("model").selectedIndex = index;
  const again = served.models[index];
  if (before === again.name && model.version === again.version) {
    connected();
    if (input) ask(input);
    return;
  }
  use(again);
}

function connected() {
  find("connection").textContent = `Connected: ${model.name}, version ${model.version}`;
}

/** Make everything be about another model. */
function use(chosen) {
  model = chosen;
  input = null;
  const { facts } = model;
  connected();
  if (!facts) {
    problem(new Error(`${model.name} was not exported by jem_tf: it is served, but this page cannot show it.`));
    return;
  }
  const { input_shape: shape } = facts;
  model.isImage = shape.length === 3 && [1, 3].includes(shape[2]);
  const known = model.examples.flat(Infinity);
  const ends = known.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
  facts.range = facts.pixel_range ?? (known.length ? ends : [0, 1]);
  find("picture").hidden = !model.isImage;
  find("vector").hidden = model.isImage;
  find("seen-figure").hidden = !model.isImage;
  find("ink-label").hidden = shape[2] !== 3;
  if (model.isImage) drawing.shape(shape, facts.range);
  find("examples-title").hidden = !model.examples.length;
  find("examples").replaceChildren(...model.examples.map((example, i) => {
    const values = example.flat(Infinity);
    const view = model.isImage ? [picture(values, facts, "")] : [];
    view[0]?.setAttribute("aria-hidden", "true");
    const label = facts.class_names[facts.example_labels?.[i]] ?? `${i + 1}`;
    const button = element("button", { ariaLabel: `Example: ${label}` }, ...view, label);
    button.addEventListener("click", () => take(values));
    return element("li", {}, button);
  }));
  find("answer").hidden = true;
  say("Draw something, or take an example.", "", "");
  find("explanation").textContent = "";
  dream.use(model);
  status.use(model, served.metrics);
}

/** Ask about exact numbers, and show them where inputs are made. */
function take(values) {
  if (model.isImage) {
    drawing.numbers(values);
  } else {
    find("numbers").value = JSON.stringify(values);
    ask(values);
  }
}

const drawing = new Drawing(find("canvas"), (values) => ask(values), problem);
const asking = newest(
  (values, signal) => call(model.name, "serving_default", { inputs: nested(values, model.facts.input_shape) }, signal),
  answered,
  problem,
);

function ask(values) {
  if (!model?.facts) return;
  input = values;
  asking(values);
  clearTimeout(settled);
  settled = setTimeout(() => {
    find("spoken").textContent = `${find("verdict").textContent} ${find("explanation").textContent}`;
    if (!find("why").hidden) explain({ model, values });
  }, 400);
}

function answered(answer, values, milliseconds) {
  problem(null);
  connected();
  const { facts } = model;
  const names = facts.class_names;
  const probabilities = answer.probabilities[0].map((p) => p ?? 0);
  const flagged = answer.is_ood[0];
  const percentile = answer.percentile?.[0];
  words(names, probabilities, flagged, percentile);
  find("answer").hidden = false;
  find("bars").replaceChildren(bars(names, probabilities, "Probabilities of the classes"));
  const threshold = facts.ood_threshold === null ? null : 100 * (1 - facts.ood_pass_rate);
  find("gauge").replaceChildren(percentile === undefined
    ? element("p", { textContent: "This export does not say: export it again." })
    : gauge(percentile, threshold));
  if (model.isImage) paint(find("seen"), values, facts.input_shape, facts.range);
  find("energy").textContent = answer.energy[0]?.toFixed(2) ?? "not a number";
  find("score").textContent = answer.ood_score[0]?.toFixed(2) ?? "not a number";
  find("latency").textContent = `${milliseconds.toFixed(0)} ms`;
  document.body.dataset.answers = Number(document.body.dataset.answers ?? 0) + 1;
}

/** The verdict as a person would say it. */
function words(names, probabilities, flagged, percentile) {
  const order = probabilities.map((p, i) => [p, names[i]]).sort((a, b) => b[0] - a[0]);
  const [[p, best], [q, second] = [0, ""]] = order;
  if (flagged) {
    say("Not like anything this model was trained on", "bad",
      `If it had to choose, it would say ${best} (${percent(p, 0)}): do not rely on that.`);
  } else if (p < 0.6) {
    say(`Perhaps ${best}, perhaps ${second}`, "unsure",
      `${percent(p, 0)} against ${percent(q, 0)}: it is not sure, and says so.`);
  } else {
    const place = percentile === undefined ? "" : ` More typical than ${percentile.toFixed(0)} % of the validation data.`;
    say(`${best}`, "good", `${percent(p)} sure, and the input is like the training data.${place}`);
  }
  if (model.facts.ood_threshold === null) {
    find("explanation").textContent += " Nothing is flagged: this model was exported without calibration data.";
  }
}

function say(verdict, kind, explanation) {
  find("verdict").textContent = verdict;
  find("verdict").className = `verdict ${kind}`;
  find("explanation").textContent = explanation;
}

function show(tab) {
  for (const name of TABS) {
    const chosen = name === tab;
    find(name).hidden = !chosen;
    find(`tab-${name}`).setAttribute("aria-selected", chosen);
    find(`tab-${name}`).tabIndex = chosen ? 0 : -1;
  }
  if (!model?.facts) return;
  if (tab === "status") status.open();
  else status.close();
  if (tab !== "why") return;
  if (input) explain({ model, values: input });
  else find("strip-text").textContent = "First draw something, or take an example, under “Try it”.";
}

function listen() {
  TABS.forEach((name, i) => {
    const tab = find(`tab-${name}`);
    tab.addEventListener("click", () => show(name));
    tab.addEventListener("keydown", (event) => {
      const move = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: TABS.length - 1 }[event.key];
      if (move === undefined) return;
      const next = TABS[(move + TABS.length) % TABS.length];
      show(next);
      find(`tab-${next}`).focus();
    });
  });
  find("model").addEventListener("change", (event) => use(served.models[event.target.selectedIndex]));
  find("clear").addEventListener("click", () => { drawing.clear(); drawing.tell(); });
  find("noise").addEventListener("click", () => {
    const [low, high] = model.facts.range;
    const size = model.facts.input_shape.reduce((a, b) => a * b);
    take(Array.from({ length: size }, () => low + Math.random() * (high - low)));
  });
  find("fit").addEventListener("change", (event) => { drawing.fit = event.target.checked; drawing.tell(); });
  find("ink").addEventListener("input", (event) => { drawing.ink = event.target.value; });
  find("file").addEventListener("change", (event) => {
    if (event.target.files[0]) drawing.image(event.target.files[0]);
    event.target.value = "";
  });
  const pictured = (files) => [...files].find((file) => file.type.startsWith("image/"));
  const canvas = find("canvas");
  document.addEventListener("dragover", (event) => { event.preventDefault(); canvas.classList.add("over"); });
  document.addEventListener("dragleave", () => canvas.classList.remove("over"));
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    canvas.classList.remove("over");
    const file = pictured(event.dataTransfer.files);
    if (file && model?.isImage) drawing.image(file);
    else problem(new Error("Only image files can be dropped here."));
  });
  document.addEventListener("paste", (event) => {
    const file = pictured(event.clipboardData.files);
    if (file && model?.isImage) drawing.image(file);
  });
  find("send").addEventListener("click", () => {
    const size = model.facts.input_shape.reduce((a, b) => a * b);
    let values;
    try {
      values = JSON.parse(find("numbers").value).flat(Infinity);
    } catch {
      values = [];
    }
    if (values.length !== size || !values.every(Number.isFinite)) {
      problem(new Error(`This model takes ${size} numbers in brackets, such as [0.1, 2]. Received: ${values.length} values.`));
      return;
    }
    problem(null);
    ask(values);
  });
  dream.listen();
}

listen();
start().catch(problem);
