// The page: chooses a model, sends inputs, shows answers. Views are in their own files.

import { call, Gone, json, nested, newest } from "./api.js";
import { bars, element, gauge, percent } from "./charts.js";
import * as dream from "./dream.js";
import { Drawing, paint, picture } from "./drawing.js";
import { Status } from "./status.js";
import { explainer, forget } from "./why.js";

const find = (id) => document.getElementById(id);
const TABS = ["try", "why", "dream", "status"];
const HINT = "Draw something, or take an example.";
const status = new Status((error) => problem(error));
let served = { models: [] };
let model = null; // {name, version, facts, examples, isImage}
let input = null; // the numbers that were asked about last
let tab = "try";
let again, settled;

/** Set a text only when it changes: screen readers read it each time. */
function tell(id, text) {
  if (find(id).textContent !== text) find(id).textContent = text;
}

function problem(error) {
  find("problem").hidden = !error;
  tell("problem", error?.message ?? "");
  clearTimeout(again);
  if (error instanceof Gone) {
    tell("connection", "Not connected: trying again");
    again = setTimeout(start, 1000);
  } else if (error?.status === 404) {
    start(); // perhaps there is another version now
  }
}

/** Find out what is served; the input stays if it suits what is there now. */
async function start() {
  try {
    served = await json("/inspector/models.json");
    const names = served.models.map((m) => m.name);
    if (!names.length) throw new Gone("No model is ready yet.");
    const index = Math.max(names.indexOf(model?.name), 0);
    find("model").replaceChildren(...names.map((name) => element("option", { textContent: name })));
    find("model").selectedIndex = index;
    use(served.models[index]);
  } catch (error) {
    problem(error instanceof Gone ? error : new Gone(error.message));
  }
}

/** Make everything be about another model, or another version of it. */
function use(chosen) {
  const shape = String(chosen.facts?.input_shape);
  const keep = model?.name === chosen.name && String(model.facts?.input_shape) === shape ? input : null;
  model = chosen;
  input = null;
  clearTimeout(settled);
  problem(null);
  connected();
  const { facts } = model;
  for (const id of ["try", "why", "dream"]) find(`tab-${id}`).disabled = !facts;
  forget(`First make an input under “${find("tab-try").textContent}”.`);
  status.use(model, served.metrics);
  if (!facts) {
    show("status");
    problem(new Error(`${model.name} was not exported by jem_tf: it is served, but this page cannot show it.`));
    return;
  }
  model.isImage = facts.input_shape.length === 3 && [1, 3].includes(facts.input_shape[2]);
  const known = model.examples.flat(Infinity);
  const ends = known.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
  facts.range = facts.pixel_range ?? (known.length ? ends : [0, 1]);
  find("picture").hidden = !model.isImage;
  find("vector").hidden = model.isImage;
  find("seen-figure").hidden = !model.isImage;
  find("ink-label").hidden = facts.input_shape[2] !== 3;
  if (model.isImage && !keep) drawing.shape(facts.input_shape, facts.range);
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
  tell("bars-title", facts.ood_threshold === null ? "Probabilities" : "Probabilities, calibrated");
  dream.use(model);
  if (keep) {
    ask(keep);
    return;
  }
  find("answer").hidden = true;
  say(HINT, "", "");
}

function connected() {
  tell("connection", `Connected: ${model.name}, version ${model.version}`);
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
const explain = explainer(() => model, problem);
const asking = newest(
  ({ model: of, values }, signal) =>
    call(of, "serving_default", { inputs: nested(values, of.facts.input_shape) }, signal),
  (answer, about, milliseconds) => { if (about.model === model) answered(answer, about.values, milliseconds); },
  (error, about) => { if (about.model === model) problem(error); },
);

function ask(values) {
  if (!model?.facts) return;
  input = values;
  asking({ model, values });
}

function answered(answer, values, milliseconds) {
  problem(null);
  connected();
  const { facts } = model;
  const names = facts.class_names;
  const probabilities = answer.probabilities[0];
  const broken = probabilities.includes(null);
  const percentile = facts.ood_threshold === null ? null : answer.percentile?.[0] ?? null;
  if (broken) say("No answer", "bad", "The model gave no number for this input.");
  else words(names, probabilities, answer.is_ood[0], percentile);
  find("answer").hidden = false;
  find("bars").replaceChildren(...(broken ? [] : [bars(names, probabilities, "Probabilities of the classes")]));
  find("gauge-title").hidden = percentile === null;
  find("gauge").replaceChildren(
    ...(percentile === null ? [] : [gauge(percentile, 100 * (1 - facts.ood_pass_rate))]));
  if (model.isImage) paint(find("seen"), values, facts.input_shape, facts.range);
  tell("energy", answer.energy[0]?.toFixed(2) ?? "not a number");
  tell("score", answer.ood_score[0]?.toFixed(2) ?? "not a number");
  tell("latency", `${milliseconds.toFixed(0)} ms`);
  document.body.dataset.answers = Number(document.body.dataset.answers ?? 0) + 1;
  clearTimeout(settled);
  settled = setTimeout(() => { // what is heard, and what costs more, when the hand rests
    tell("spoken", `${find("verdict").textContent}. ${find("explanation").textContent}`);
    if (tab === "why") explain({ model, values });
  }, 400);
}

/** The verdict as a person would say it. */
function words(names, probabilities, flagged, percentile) {
  const order = probabilities.map((p, i) => [p, names[i]]).sort((a, b) => b[0] - a[0]);
  const [[p, best], [q, second]] = order;
  if (flagged) {
    say("Not like anything this model was trained on", "bad",
      `If it had to choose, it would say ${best} (${percent(p, 0)}): do not rely on that.`);
  } else if (p < 0.6) {
    say(`Perhaps ${best}, perhaps ${second}`, "unsure",
      `${percent(p, 0)} against ${percent(q, 0)}: it is not sure, and says so.`);
  } else if (percentile === null) {
    say(best, "unsure", `${percent(p)} sure. Whether the input is like the training data is not known: `
      + "this model was exported without calibration data.");
  } else {
    say(best, "good", `${percent(p)} sure, and the input is like the training data: more typical than `
      + `${percentile.toFixed(0)} % of the validation data.`);
  }
}

function say(verdict, kind, explanation) {
  tell("verdict", verdict);
  find("verdict").className = `verdict ${kind}`;
  tell("explanation", explanation);
}

function show(chosen) {
  tab = chosen;
  for (const name of TABS) {
    find(name).hidden = name !== tab;
    find(`tab-${name}`).setAttribute("aria-selected", name === tab);
    find(`tab-${name}`).tabIndex = name === tab ? 0 : -1;
  }
  if (tab === "status" && model) status.open();
  else status.close();
  if (tab === "why" && input) explain({ model, values: input });
}

function listen() {
  TABS.forEach((name, i) => {
    const tab = find(`tab-${name}`);
    tab.addEventListener("click", () => show(name));
    tab.addEventListener("keydown", (event) => {
      const move = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: TABS.length - 1 }[event.key];
      if (move === undefined) return;
      event.preventDefault();
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
  dream.listen(problem);
}

listen();
start();
