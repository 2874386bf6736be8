// Requests of the page to the server: TF Serving's REST API, and the inspector's list of models.

const MAX_WAIT_MS = 1000; // for a response while a newer input waits

/** The server does not answer or is not ready; the page tries again. */
export class ServerUnavailable extends Error {}

export async function fetchText(path, options = {}) {
  let response, text;
  try {
    response = await fetch(path, { cache: "no-store", credentials: "omit", ...options });
    text = await response.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerUnavailable("The server does not answer. Is it running? Start it with: jem-tf serve.");
  }
  if (response.ok) return text;
  if (response.status >= 502) throw new ServerUnavailable(`The server is not ready (${response.status}).`);
  let message = text;
  try { message = JSON.parse(text).error ?? text; } catch { /* not JSON: show the text */ }
  const error = new Error(`The server refused (${response.status}): ${message.slice(0, 300)}`);
  throw Object.assign(error, { status: response.status });
}

/** Parse JSON; NaN and Infinity, which TF Serving writes as bare words, become null. */
function parseJson(text) {
  try { return JSON.parse(text); } catch { /* perhaps because of these words */ }
  return JSON.parse(text.replace(/([[:,]\s*)-?(?:NaN|Infinity)(?=\s*[\],}])/g, "$1null"));
}

export const fetchJson = async (path) => parseJson(await fetchText(path));

/** Return the outputs of a signature, one row per input; `inputs` maps names to arrays of rows. */
export async function callSignature({ name, version }, signature, inputs, signal) {
  const body = JSON.stringify({ signature_name: signature, inputs });
  const path = `/v1/models/${encodeURIComponent(name)}/versions/${version}:predict`;
  const headers = { "Content-Type": "application/json" };
  return parseJson(await fetchText(path, { method: "POST", body, headers, signal })).outputs;
}

/**
 * Return a function that sends values, one request at a time. While a request is in progress, only
 * the newest value waits; a request that takes longer than MAX_WAIT_MS is aborted for it. The
 * function resolves to true once nothing waits any more, and to false if another call sends.
 */
export function sendNewest(send, onResponse, onError) {
  let waiting, request = null;
  return async (newValue) => {
    waiting = { value: newValue };
    if (request) return false;
    while (waiting) {
      const { value } = waiting;
      waiting = undefined;
      const current = request = new AbortController();
      const timer = setInterval(() => waiting && current.abort(), MAX_WAIT_MS);
      try {
        const start = performance.now();
        const response = await send(value, current.signal);
        onResponse(response, value, performance.now() - start);
      } catch (error) {
        if (error.name !== "AbortError") onError(error, value);
      }
      clearInterval(timer);
    }
    request = null;
    return true;
  };
}

/** Return a flat array as nested arrays: one row of `shape`. A text is a row by itself. */
export function toRow(values, shape) {
  if (typeof values === "string") return [values];
  let parts = Array.from(values, (v) => Number(Math.fround(v).toPrecision(7)));
  for (const size of shape.slice(1).reverse()) {
    const rows = [];
    for (let i = 0; i < parts.length; i += size) rows.push(parts.slice(i, i + size));
    parts = rows;
  }
  return [parts];
}
