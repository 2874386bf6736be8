// Why an input is unusual: the slope of log p(x), and the input pulled towards the data.

import { call, nested, newest } from "./api.js";
import { bars, element, percent } from "./charts.js";
import { picture } from "./drawing.js";

const TIMES = 5; // the sampler's steps are asked for so often

const find = (id) => document.getElementById(id);
const softmax = (logits, temperature) => {
  const top = Math.max(...logits);
  const parts = logits.map((v) => Math.exp((v - top) / temperature));
  const sum = parts.reduce((a, b) => a + b, 0);
  return parts.map((v) => v / sum);
};

/** Explains inputs `{model, values}` of the model that `current()` gives; others are too late. */
export function explainer(current, problem) {
  return newest(asked, (found, about) => {
    if (about.model === current()) shown(found, about);
  }, (error, about) => { if (about.model === current()) problem(error); });
}

export function forget(text) {
  for (const id of ["heat", "strip", "compare"]) find(id).replaceChildren();
  find("strip-text").textContent = text;
}

async function asked({ model, values }, signal) {
  const { facts } = model;
  const inputs = nested(values, facts.input_shape);
  const has = (signature) => facts.signatures.includes(signature);
  const found = { slope: null, steps: [] };
  if (has("gradient")) {
    found.slope = (await call(model, "gradient", { inputs }, signal)).flat(Infinity);
  }
  const [logits] = await call(model, "logits", { inputs }, signal);
  found.steps.push({ values, logits });
  for (let i = 0, now = inputs; has("refine") && i < TIMES; i++) {
    const answer = await call(model, "refine", { inputs: now }, signal);
    now = answer.refined;
    if (now.flat(Infinity).includes(null)) break; // no numbers any more
    found.steps.push({ values: now.flat(Infinity), logits: answer.logits[0] });
  }
  return found;
}

function shown({ slope, steps }, { model }) {
  const { facts } = model;
  const steep = slope?.map(Math.abs);
  find("heat").replaceChildren(...(steep ? heat(steep, steps[0].values, model) : [
    element("p", { textContent: "This export has no `gradient` signature: export it again." })]));
  const said = steps.map(({ logits }) => {
    const p = softmax(logits, facts.temperature);
    const best = p.indexOf(Math.max(...p));
    return { p, words: `${facts.class_names[best]}, ${percent(p[best], 0)}` };
  });
  find("strip").replaceChildren(...steps.map(({ values }, i) => {
    const when = i ? `after ${i * facts.refine_steps} steps` : "your input";
    const view = model.isImage
      ? picture(values, facts, `${when}: ${said[i].words}`)
      : element("code", { textContent: values.map((v) => v.toPrecision(4)).join(" ") });
    return element("li", {}, element("figure", {}, view,
      element("figcaption", { textContent: `${when}: ${said[i].words}` })));
  }));
  if (steps.length < 2) {
    find("strip-text").textContent = "This model was exported without a `refine` signature.";
    find("compare").replaceChildren();
    return;
  }
  find("strip-text").textContent =
    `${facts.refine_steps} sampler steps at a time move the input to where the model expects data.`;
  find("compare").replaceChildren(...[[0, "Before"], [steps.length - 1, "After"]].map(([i, when]) =>
    element("div", {}, element("h3", { textContent: when }),
      bars(facts.class_names, said[i].p, `Probabilities: ${when}`))));
}

/** Black, purple, orange, yellow: red, green and blue of a share. */
function colour(share) {
  const stops = [[0, 0, 0.05], [0.45, 0.08, 0.45], [0.95, 0.45, 0.1], [1, 1, 0.6]];
  const at = Math.min(share, 0.9999) * (stops.length - 1);
  const [from, part] = [Math.floor(at), at % 1];
  return stops[from].map((v, c) => v + part * (stops[from + 1][c] - v));
}

function heat(steep, values, model) {
  const { facts } = model;
  const most = steep.reduce((a, b) => Math.max(a, b), 0) || 1;
  if (!model.isImage) {
    return [bars(steep.map((_, i) => `value ${i + 1}`), steep.map((v) => v / most), "Steepest values")];
  }
  const channels = facts.input_shape[2];
  const coloured = [];
  for (let i = 0; i < steep.length; i += channels) {
    const share = Math.max(...steep.slice(i, i + channels)) / most;
    coloured.push(...colour(share));
  }
  const shape = [...facts.input_shape.slice(0, 2), 3];
  const map = { input_shape: shape, range: [0, 1] };
  return [
    element("figure", {}, picture(values, facts, "Your input"), element("figcaption", { textContent: "your input" })),
    element("figure", {}, picture(coloured, map, "Heat map of the slope of log p(x)"),
      element("figcaption", { textContent: `dark: flat, bright: steep (up to ${most.toFixed(2)} nats per half range)` }))];
}
