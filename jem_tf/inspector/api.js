// What the page asks the server: TF Serving's REST API, as any client would.

export class Gone extends Error {}

async function fetched(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { cache: "no-store", credentials: "omit", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Gone("The server does not answer. Is it running?");
  }
  const text = await answer.text();
  if (answer.ok) return text;
  let said = text;
  try { said = JSON.parse(text).error ?? text; } catch { /* not JSON: as it is */ }
  throw new Error(`The server refused (${answer.status}): ${said.slice(0, 300)}`);
}

// TF Serving writes NaN and Infinity as they are, which is no JSON: null here.
function parsed(text) {
  try { return JSON.parse(text); } catch { /* perhaps these numbers */ }
  return JSON.parse(text.replace(/([[:,]\s*)-?(?:NaN|Infinity)(?=\s*[\],}])/g, "$1null"));
}

export const text = (path) => fetched(path);
export const json = async (path) => parsed(await fetched(path));

/** The outputs of a signature, an array with a row for each input; `inputs` are such arrays. */
export async function call(model, signature, inputs, signal) {
  const body = JSON.stringify({ signature_name: signature, inputs });
  const path = `/v1/models/${encodeURIComponent(model)}:predict`;
  const headers = { "Content-Type": "application/json" };
  return parsed(await fetched(path, { method: "POST", body, headers, signal })).outputs;
}

/**
 * A function to call with each new value. One request is under way at a time; while it is, only the
 * newest value waits, and one that takes longer than a second is given up for it.
 */
export function newest(ask, show, fail) {
  let waiting, going = null;
  const patience = () => { if (waiting && going) going.abort(); };
  return async (value) => {
    waiting = { value };
    if (going) { setTimeout(patience, 1000); return; }
    while (waiting) {
      const { value: now } = waiting;
      waiting = undefined;
      going = new AbortController();
      try {
        const began = performance.now();
        const answer = await ask(now, going.signal);
        show(answer, now, performance.now() - began);
      } catch (error) {
        if (error.name !== "AbortError") fail(error);
      }
    }
    going = null;
  };
}

/** A flat array as the nested one of a single row of `shape`. */
export function nested(values, shape) {
  let parts = Array.from(values, (v) => Math.round(v * 1e4) / 1e4);
  for (const size of shape.slice(1).reverse()) {
    const rows = [];
    for (let i = 0; i < parts.length; i += size) rows.push(parts.slice(i, i + size));
    parts = rows;
  }
  return [parts];
}
