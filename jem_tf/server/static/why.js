// The tab "Why": the gradient of log p(x), and the input moved towards the data.

import { callSignature, sendNewest, toRow } from "./api.js";
import { bars, element, percent } from "./charts.js";
import { picture } from "./drawing.js";

const REFINE_CALLS = 5; // of the signature `refine`, each on the result of the one before

const MAX_OBJECTIONS = 5;

const find = (id) => document.getElementById(id);
const softmax = (logits, temperature) => {
  const max = Math.max(...logits);
  const parts = logits.map((v) => Math.exp((v - max) / temperature));
  const sum = parts.reduce((a, b) => a + b, 0);
  return parts.map((v) => v / sum);
};

/** Return a function that explains an input `{model, values}` unless `currentModel()` changes. */
export function makeExplainer(currentModel, showProblem) {
  return sendNewest(explain, (explanation, input) => {
    if (input.model === currentModel()) showExplanation(explanation, input.model);
  }, (error, input) => { if (input.model === currentModel()) showProblem(error); });
}

export function clearExplanation(text) {
  find("objections-part").hidden = true;
  for (const id of ["heat", "strip", "compare"]) find(id).replaceChildren();
  find("strip-text").textContent = text;
}

async function explain({ model, values }, signal) {
  const { facts } = model;
  const inputs = toRow(values, facts.input_shape);
  const has = (signature) => facts.signatures.includes(signature);
  let gradient = null;
  if (has("gradient")) {
    gradient = (await callSignature(model, "gradient", { inputs }, signal)).flat(Infinity);
  }
  let objections = null;
  if (facts.detector) objections = (await callSignature(model, "ood_score", { inputs }, signal)).objections?.[0];
  const [logits] = await callSignature(model, "logits", { inputs }, signal);
  const steps = [{ values, logits }];
  const refines = has("refine") && !facts.feature_shape; // refined features are no inputs
  for (let i = 0, current = inputs; refines && i < REFINE_CALLS; i++) {
    const outputs = await callSignature(model, "refine", { inputs: current }, signal);
    current = outputs.refined;
    if (current.flat(Infinity).includes(null)) break; // not finite
    steps.push({ values: current.flat(Infinity), logits: outputs.logits[0] });
  }
  return { gradient, objections, steps };
}

function showExplanation({ gradient, objections, steps }, model) {
  const { facts } = model;
  const slopes = gradient?.map(Math.abs);
  showObjections(objections, facts);
  find("heat").replaceChildren(...(slopes ? heatMap(slopes, steps[0].values, model) : [
    element("p", { textContent: model.isText
      ? "Text has no gradient." : "This export has no `gradient` signature: export it again." })]));
  const predictions = steps.map(({ logits }) => {
    const probabilities = softmax(logits, facts.temperature);
    const best = probabilities.indexOf(Math.max(...probabilities));
    return { probabilities, text: `${facts.class_names[best]}, ${percent(probabilities[best], 0)}` };
  });
  find("strip").replaceChildren(...steps.map(({ values }, i) => {
    const caption = `${i ? `after ${i * facts.refine_steps} steps` : "your input"}: ${predictions[i].text}`;
    const view = model.isImage
      ? picture(values, facts, caption)
      : element("code", { textContent: model.isText ? values : values.map((v) => v.toPrecision(4)).join(" ") });
    return element("li", {}, element("figure", {}, view, element("figcaption", { textContent: caption })));
  }));
  if (steps.length < 2) {
    find("strip-text").textContent = facts.feature_shape
      ? "Sampler steps of this model change features, which cannot be shown."
      : "This model was exported without a `refine` signature.";
    find("compare").replaceChildren();
    return;
  }
  find("strip-text").textContent =
    `${facts.refine_steps} sampler steps at a time move the input to where the model expects data.`;
  find("compare").replaceChildren(...[[0, "Before"], [steps.length - 1, "After"]].map(([i, title]) =>
    element("div", {}, element("h3", { textContent: title }),
      bars(facts.class_names, predictions[i].probabilities, `Probabilities: ${title}`))));
}

/** Show the share of each statistic in the distance of the fused score from its largest value. */
function showObjections(objections, facts) {
  find("objections-part").hidden = !objections;
  if (!objections) return;
  const total = objections.reduce((a, b) => a + b, 0) || 1;
  const parts = Object.keys(facts.detector.weights).map((name, i) => [name, objections[i] / total])
    .sort((a, b) => b[1] - a[1]).slice(0, MAX_OBJECTIONS);
  find("objections").replaceChildren(
    bars(parts.map(([name]) => name), parts.map(([, share]) => share), "Statistics that object"));
}

/** Return red, green and blue for a share: black, purple, orange, yellow. */
function colour(share) {
  const stops = [[0, 0, 0.05], [0.45, 0.08, 0.45], [0.95, 0.45, 0.1], [1, 1, 0.6]];
  const position = Math.min(share, 0.9999) * (stops.length - 1);
  const [index, part] = [Math.floor(position), position % 1];
  return stops[index].map((v, c) => v + part * (stops[index + 1][c] - v));
}

function heatMap(slopes, values, model) {
  const { facts } = model;
  const max = slopes.reduce((a, b) => Math.max(a, b), 0) || 1;
  if (!model.isImage) {
    return [bars(slopes.map((_, i) => `value ${i + 1}`), slopes.map((v) => v / max), "Steepest values")];
  }
  const channels = facts.input_shape[2];
  const colours = [];
  for (let i = 0; i < slopes.length; i += channels) {
    colours.push(...colour(Math.max(...slopes.slice(i, i + channels)) / max));
  }
  const map = { input_shape: [...facts.input_shape.slice(0, 2), 3], range: [0, 1] };
  return [
    element("figure", {}, picture(values, facts, "Your input"), element("figcaption", { textContent: "your input" })),
    element("figure", {}, picture(colours, map, "Heat map of the slope of log p(x)"),
      element("figcaption", { textContent: `dark: flat, bright: steep (up to ${max.toFixed(2)} nats per half range)` }))];
}
