// The page: selects a model, sends inputs and shows the answers. Other tabs have their own files.

import { callSignature, fetchJson, sendNewest, ServerUnavailable, toRow } from "./api.js";
import { bars, element, gauge, percent } from "./charts.js";
import * as dream from "./dream.js";
import { Drawing, paint, picture } from "./drawing.js";
import { Status } from "./status.js";
import { clearExplanation, makeExplainer } from "./why.js";

const find = (id) => document.getElementById(id);
const TABS = ["try", "why", "dream", "status"];
const HINTS = { image: "Draw something or choose an example.", other: "Type an input or choose an example." };
const RETRY_MS = 1000; // while the server is unavailable
const SETTLE_MS = 400; // after an answer, before it is spoken and explained
const status = new Status((error) => showProblem(error ?? unsupportedModel()));
let served = { models: [] };
let model = null; // {name, version, facts, examples, isImage, isText}
let input = null; // the values that were sent last
let tab = "try";
let retryTimer, settleTimer;

/** Set a text only if it changes: screen readers read it each time. */
function setText(id, text) {
  if (find(id).textContent !== text) find(id).textContent = text;
}

function showProblem(error) {
  find("problem").hidden = !error;
  setText("problem", error?.message ?? "");
  clearTimeout(retryTimer);
  if (error instanceof ServerUnavailable) {
    setText("connection", "Not connected: trying again");
    retryTimer = setTimeout(loadModels, RETRY_MS);
  } else if (error?.status === 404) {
    loadModels(); // perhaps there is a new version
  }
}

/** Fetch the served models, and select the current one or the first. */
async function loadModels() {
  try {
    served = await fetchJson("/inspector/models.json");
    const names = served.models.map((m) => m.name);
    if (!names.length) throw new ServerUnavailable("No model is ready yet.");
    const index = Math.max(names.indexOf(model?.name), 0);
    find("model").replaceChildren(...names.map((name) => element("option", { textContent: name })));
    find("model").selectedIndex = index;
    selectModel(served.models[index]);
  } catch (error) {
    showProblem(error instanceof ServerUnavailable ? error : new ServerUnavailable(error.message));
  }
}

/** Show another model or version; the input stays if the model's name and input shape do. */
function selectModel(newModel) {
  const shape = String(newModel.facts?.input_shape);
  const isSame = model?.name === newModel.name && String(model.facts?.input_shape) === shape;
  const keptInput = isSame ? input : null;
  model = newModel;
  input = null;
  clearTimeout(settleTimer);
  showProblem(null);
  showConnected();
  const { facts } = model;
  for (const id of ["try", "why", "dream"]) find(`tab-${id}`).disabled = !facts;
  clearExplanation(`First make an input under “${find("tab-try").textContent}”.`);
  status.selectModel(model, served.metrics);
  if (!facts) {
    showTab("status");
    showProblem(unsupportedModel());
    return;
  }
  model.isImage = facts.input_shape.length === 3 && [1, 3].includes(facts.input_shape[2]);
  model.isText = !facts.input_shape.length;
  facts.range = facts.pixel_range ?? valueRange(model.isText ? [] : model.examples.flat(Infinity));
  find("picture").hidden = !model.isImage;
  find("vector").hidden = model.isImage;
  setText("numbers-label", model.isText ? "Text" : "Numbers, as JSON");
  find("seen-figure").hidden = !model.isImage;
  find("ink-label").hidden = facts.input_shape[2] !== 3;
  if (model.isImage && !keptInput) drawing.reset(facts.input_shape, facts.range);
  showExamples();
  setText("bars-title", !facts.detector ? "Probabilities" : "Probabilities, calibrated");
  dream.selectModel(model);
  if (keptInput) {
    ask(keptInput);
    return;
  }
  find("answer").hidden = true;
  setVerdict(model.isImage ? HINTS.image : HINTS.other, "", "");
}

/** Return the problem with a model that has a status only; null for models of jem_tf. */
function unsupportedModel() {
  if (model.facts) return null;
  return new Error(`${model.name} was not exported by jem_tf: it is served, but this page cannot show it.`);
}

function valueRange(values) {
  if (!values.length) return [0, 1];
  return values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
}

function showExamples() {
  const { facts, examples } = model;
  find("examples-title").hidden = !examples.length;
  find("examples").replaceChildren(...examples.map((example, i) => {
    const values = model.isText ? example : example.flat(Infinity);
    const view = model.isImage ? [picture(values, facts, "")] : [];
    view[0]?.setAttribute("aria-hidden", "true");
    const label = facts.class_names[facts.example_labels?.[i]] ?? `${i + 1}`;
    const button = element("button", { ariaLabel: `Example: ${label}` }, ...view, label);
    button.addEventListener("click", () => setInput(values));
    return element("li", {}, button);
  }));
}

function showConnected() {
  setText("connection", `Connected: ${model.name}, version ${model.version}`);
}

/** Show `values` as the input, and send exactly these. */
function setInput(values) {
  if (model.isImage) {
    drawing.showValues(values);
  } else {
    find("numbers").value = model.isText ? values : JSON.stringify(values);
    ask(values);
  }
}

const drawing = new Drawing(find("canvas"), (values) => ask(values), showProblem);
const explain = makeExplainer(() => model, showProblem);
const send = sendNewest(
  ({ model: target, values }, signal) =>
    callSignature(target, "serving_default", { inputs: toRow(values, target.facts.input_shape) }, signal),
  (outputs, question, milliseconds) => {
    if (question.model === model) showAnswer(outputs, question.values, milliseconds);
  },
  (error, question) => { if (question.model === model) showProblem(error); },
);

/** Send `values`; `data-pending` of the body says whether an answer is still to come. */
async function ask(values) {
  if (!model?.facts) return;
  input = values;
  document.body.dataset.pending = "";
  if (await send({ model, values })) delete document.body.dataset.pending;
}

function showAnswer(outputs, values, milliseconds) {
  showProblem(null);
  showConnected();
  const { facts } = model;
  const names = facts.class_names;
  const probabilities = outputs.probabilities[0];
  const allFinite = !probabilities.includes(null);
  const percentile = !facts.detector ? null : outputs.percentile?.[0] ?? null;
  if (allFinite) showVerdict(names, probabilities, outputs.is_ood[0], percentile);
  else setVerdict("No answer", "bad", "The probabilities for this input are not finite.");
  find("answer").hidden = false;
  find("bars").replaceChildren(...(allFinite ? [bars(names, probabilities, "Probabilities of the classes")] : []));
  find("gauge-title").hidden = percentile === null;
  find("gauge").replaceChildren(
    ...(percentile === null ? [] : [gauge(percentile, 100 * facts.detector.false_alarm_rate)]));
  if (model.isImage) paint(find("seen"), values, facts.input_shape, facts.range);
  setText("energy", outputs.energy[0]?.toFixed(2) ?? "not a number");
  setText("score", outputs.ood_score[0]?.toFixed(2) ?? "not a number");
  setText("latency", `${milliseconds.toFixed(0)} ms`);
  document.body.dataset.answers = Number(document.body.dataset.answers ?? 0) + 1;
  clearTimeout(settleTimer);
  settleTimer = setTimeout(() => { // not while the user is drawing
    setText("spoken", `${find("verdict").textContent}. ${find("explanation").textContent}`);
    if (tab === "why") explain({ model, values });
  }, SETTLE_MS);
}

/** Show the verdict in words. */
function showVerdict(names, probabilities, isOod, percentile) {
  const order = probabilities.map((p, i) => [p, names[i]]).sort((a, b) => b[0] - a[0]);
  const [[p, best], [q, second]] = order;
  if (isOod) {
    setVerdict("Not like anything this model was trained on", "bad",
      `The most likely class is ${best} (${percent(p, 0)}): do not rely on that.`);
  } else if (p < 0.6) {
    setVerdict(`Perhaps ${best}, perhaps ${second}`, "unsure",
      `The model is not sure: ${percent(p, 0)} against ${percent(q, 0)}.`);
  } else if (percentile === null) {
    setVerdict(best, "unsure", `${percent(p)} sure. Whether the input is like the training data is not known: `
      + "this model was exported without calibration data.");
  } else {
    setVerdict(best, "good", `${percent(p)} sure, and the input is like the training data: more typical than `
      + `${percentile.toFixed(0)} % of the validation data.`);
  }
}

function setVerdict(verdict, kind, explanation) {
  setText("verdict", verdict);
  find("verdict").className = `verdict ${kind}`;
  setText("explanation", explanation);
}

function showTab(selected) {
  tab = selected;
  for (const name of TABS) {
    find(name).hidden = name !== tab;
    find(`tab-${name}`).setAttribute("aria-selected", name === tab);
    find(`tab-${name}`).tabIndex = name === tab ? 0 : -1;
  }
  if (tab === "status" && model) status.open();
  else status.close();
  if (tab === "why" && input) explain({ model, values: input });
}

function listenToTabs() {
  TABS.forEach((name, i) => {
    const button = find(`tab-${name}`);
    button.addEventListener("click", () => showTab(name));
    button.addEventListener("keydown", (event) => {
      const index = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: TABS.length - 1 }[event.key];
      if (index === undefined) return;
      event.preventDefault();
      const next = TABS[(index + TABS.length) % TABS.length];
      showTab(next);
      find(`tab-${next}`).focus();
    });
  });
}

function listenToDrawing() {
  find("clear").addEventListener("click", () => { drawing.clear(); drawing.notify(); });
  find("noise").addEventListener("click", () => {
    const [low, high] = model.facts.range;
    const size = model.facts.input_shape.reduce((a, b) => a * b);
    setInput(Array.from({ length: size }, () => low + Math.random() * (high - low)));
  });
  find("fit").addEventListener("change", (event) => { drawing.fit = event.target.checked; drawing.notify(); });
  find("ink").addEventListener("input", (event) => { drawing.ink = event.target.value; });
  find("file").addEventListener("change", (event) => {
    if (event.target.files[0]) drawing.showFile(event.target.files[0]);
    event.target.value = "";
  });
  const imageFile = (files) => [...files].find((file) => file.type.startsWith("image/"));
  const canvas = find("canvas");
  document.addEventListener("dragover", (event) => { event.preventDefault(); canvas.classList.add("over"); });
  document.addEventListener("dragleave", () => canvas.classList.remove("over"));
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    canvas.classList.remove("over");
    const file = imageFile(event.dataTransfer.files);
    if (file && model?.isImage) drawing.showFile(file);
    else showProblem(new Error("Only image files can be dropped here."));
  });
  document.addEventListener("paste", (event) => {
    const file = imageFile(event.clipboardData.files);
    if (file && model?.isImage) drawing.showFile(file);
  });
}

function sendTyped() {
  if (model.isText) {
    ask(find("numbers").value);
    return;
  }
  const size = model.facts.input_shape.reduce((a, b) => a * b);
  let values;
  try {
    values = JSON.parse(find("numbers").value).flat(Infinity);
  } catch {
    values = [];
  }
  if (values.length !== size || !values.every(Number.isFinite)) {
    showProblem(new Error(
      `This model takes ${size} numbers in brackets, such as [0.1, 2]. Received: ${values.length} values.`));
    return;
  }
  showProblem(null);
  ask(values);
}

listenToTabs();
listenToDrawing();
find("model").addEventListener("change", (event) => selectModel(served.models[event.target.selectedIndex]));
find("send").addEventListener("click", sendTyped);
dream.listen(showProblem);
loadModels();
