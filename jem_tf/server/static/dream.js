// Samples that the model draws of a class.

import { call } from "./api.js";
import { element } from "./charts.js";
import { picture } from "./drawing.js";

const find = (id) => document.getElementById(id);
let model;

export function use(chosen) {
  model = chosen;
  const names = model.facts.class_names;
  find("dream-class").replaceChildren(
    element("option", { value: "all", textContent: "each in turn" }),
    ...names.map((name, i) => element("option", { value: i, textContent: name })));
  find("dream-count").value = Math.min(names.length, 10);
  find("dreams").replaceChildren();
  const able = model.facts.signatures.includes("sample");
  find("dream-form").hidden = !able;
  find("dream-text").textContent = able ? "" :
    "This model was exported without a `sample` signature (it was not adapted to data, or its sampler cannot seed rows).";
}

export function listen(problem) {
  find("dream-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const chosen = model;
    const { facts } = chosen;
    const [which, count, seed] = ["class", "count", "seed"].map((part) => find(`dream-${part}`).value);
    const rows = [...Array(Math.min(Math.max(Number(count) || 1, 1), 32)).keys()];
    const labels = rows.map((i) => (which === "all" ? i % facts.class_names.length : Number(which)));
    const button = event.submitter;
    button.disabled = true;
    find("dream-text").textContent = `Dreaming, ${facts.sample_steps} steps for each…`;
    try {
      const began = performance.now();
      const seeds = rows.map((i) => Number(seed) * 1000 + i);
      const samples = await call(chosen, "sample", { labels, seeds });
      if (chosen !== model) return;
      find("dreams").replaceChildren(...samples.map((sample, i) => {
        const label = facts.class_names[labels[i]];
        const values = sample.flat(Infinity);
        const view = model.isImage ? picture(values, facts, `Sample of ${label}`)
          : element("code", { textContent: values.map((v) => v?.toPrecision(4) ?? "NaN").join(" ") });
        return element("li", {}, element("figure", {}, view, element("figcaption", { textContent: label })));
      }));
      const seconds = ((performance.now() - began) / 1e3).toFixed(1);
      find("dream-text").textContent = `${samples.length} samples in ${seconds} s, seed ${seed}.`;
    } catch (error) {
      if (chosen === model) {
        find("dream-text").textContent = "";
        problem(error);
      }
    } finally {
      button.disabled = false;
    }
  });
}
