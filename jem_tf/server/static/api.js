// What the page asks the server: TF Serving's REST API, as any client would.

const PATIENCE = 1000; // milliseconds, for an answer that a newer question waits for

export class Gone extends Error {}

async function fetched(path, options = {}) {
  let answer, text;
  try {
    answer = await fetch(path, { cache: "no-store", credentials: "omit", ...options });
    text = await answer.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Gone("The server does not answer. Is it running? Start it with: jem-tf serve.");
  }
  if (answer.ok) return text;
  if (answer.status >= 502) throw new Gone(`The server is not ready (${answer.status}).`);
  let said = text;
  try { said = JSON.parse(text).error ?? text; } catch { /* not JSON: as it is */ }
  const error = new Error(`The server refused (${answer.status}): ${said.slice(0, 300)}`);
  throw Object.assign(error, { status: answer.status });
}

// TF Serving writes NaN and Infinity as they are, which is no JSON: null here.
function parsed(text) {
  try { return JSON.parse(text); } catch { /* perhaps these numbers */ }
  return JSON.parse(text.replace(/([[:,]\s*)-?(?:NaN|Infinity)(?=\s*[\],}])/g, "$1null"));
}

export const text = (path) => fetched(path);
export const json = async (path) => parsed(await fetched(path));

/** The outputs of a signature, an array with a row for each input; `inputs` are such arrays. */
export async function call({ name, version }, signature, inputs, signal) {
  const body = JSON.stringify({ signature_name: signature, inputs });
  const path = `/v1/models/${encodeURIComponent(name)}/versions/${version}:predict`;
  const headers = { "Content-Type": "application/json" };
  return parsed(await fetched(path, { method: "POST", body, headers, signal })).outputs;
}

/**
 * A function to call with each new value. One request is under way at a time; while it is, only the
 * newest value waits, and one that takes longer than a second is given up for it.
 */
export function newest(ask, show, fail) {
  let waiting, going = null;
  return async (value) => {
    waiting = { value };
    if (going) return;
    while (waiting) {
      const { value: now } = waiting;
      waiting = undefined;
      const request = going = new AbortController();
      const patience = setInterval(() => waiting && request.abort(), PATIENCE);
      try {
        const began = performance.now();
        const answer = await ask(now, request.signal);
        show(answer, now, performance.now() - began);
      } catch (error) {
        if (error.name !== "AbortError") fail(error, now);
      }
      clearInterval(patience);
    }
    going = null;
  };
}

/** A flat array as the nested one of a single row of `shape`. */
export function nested(values, shape) {
  let parts = Array.from(values, (v) => Number(Math.fround(v).toPrecision(7)));
  for (const size of shape.slice(1).reverse()) {
    const rows = [];
    for (let i = 0; i < parts.length; i += size) rows.push(parts.slice(i, i + size));
    parts = rows;
  }
  return [parts];
}
