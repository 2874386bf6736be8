// The tab "Dream": samples that the model draws from p(x | class).

import { callSignature } from "./api.js";
import { element } from "./charts.js";
import { picture } from "./drawing.js";

const MAX_SAMPLES = 32;
const find = (id) => document.getElementById(id);
let model;

export function selectModel(newModel) {
  model = newModel;
  const names = model.facts.class_names;
  find("dream-class").replaceChildren(
    element("option", { value: "all", textContent: "each in turn" }),
    ...names.map((name, i) => element("option", { value: i, textContent: name })));
  find("dream-count").value = Math.min(names.length, 10);
  find("dreams").replaceChildren();
  const canSample = model.facts.signatures.includes("sample");
  find("dream-form").hidden = !canSample;
  find("dream-text").textContent = canSample ? "" :
    "This model was exported without a `sample` signature (it was not adapted to data, or its sampler cannot seed rows).";
}

export function listen(showProblem) {
  find("dream-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = event.submitter;
    button.disabled = true;
    const current = model;
    try {
      await dream(current);
    } catch (error) {
      if (current === model) {
        find("dream-text").textContent = "";
        showProblem(error);
      }
    } finally {
      button.disabled = false;
    }
  });
}

/** Draw the samples that the form asks for, unless another model is selected meanwhile. */
async function dream(current) {
  const { facts } = current;
  const [label, count, seed] = ["class", "count", "seed"].map((part) => find(`dream-${part}`).value);
  const rows = [...Array(Math.min(Math.max(Number(count) || 1, 1), MAX_SAMPLES)).keys()];
  const labels = rows.map((i) => (label === "all" ? i % facts.class_names.length : Number(label)));
  const seeds = rows.map((i) => Number(seed) * 1000 + i);
  find("dream-text").textContent = `Sampling, ${facts.sample_steps} steps each…`;
  const start = performance.now();
  const samples = await callSignature(current, "sample", { labels, seeds });
  if (current !== model) return;
  find("dreams").replaceChildren(...samples.map((sample, i) => {
    const name = facts.class_names[labels[i]];
    const values = sample.flat(Infinity);
    const view = current.isImage && !facts.feature_shape ? picture(values, facts, `Sample of ${name}`)
      : element("code", { textContent: values.map((v) => v?.toPrecision(4) ?? "NaN").join(" ") });
    return element("li", {}, element("figure", {}, view, element("figcaption", { textContent: name })));
  }));
  const seconds = ((performance.now() - start) / 1e3).toFixed(1);
  find("dream-text").textContent = `${samples.length} samples in ${seconds} s, seed ${seed}.`;
}
