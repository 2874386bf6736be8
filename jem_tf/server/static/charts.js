// HTML elements and SVG charts. Text is always inserted as text, never as HTML.

const SVG = "http://www.w3.org/2000/svg";

export function element(name, properties = {}, ...children) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
}

function svgElement(name, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

function chart(width, height, label, ...children) {
  const attributes = { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label };
  const node = svgElement("svg", attributes, ...children);
  node.style.maxWidth = `${width / 14}rem`;
  return node;
}

export const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)} %`;

/** Return a table with a bar for each of the `maxRows` most likely classes. */
export function bars(names, probabilities, caption, maxRows = 10) {
  const order = probabilities.map((p, i) => [p, i]).sort((a, b) => b[0] - a[0]).slice(0, maxRows);
  const best = order[0][1];
  if (names.length <= maxRows) order.sort((a, b) => a[1] - b[1]);
  const rows = order.map(([p, i]) => {
    const bar = element("div");
    bar.style.width = `${100 * p}%`;
    return element("tr", { className: i === best ? "best" : "" },
      element("th", { scope: "row", textContent: names[i] }),
      element("td", { className: "bar" }, bar),
      element("td", { textContent: percent(p) }));
  });
  const title = element("caption", { className: "unseen", textContent: caption });
  return element("table", { className: "bars" }, title, element("tbody", {}, ...rows));
}

/** Return a scale with the percentile of an input; inputs below `threshold` are flagged. */
export function gauge(percentile, threshold) {
  const [width, left] = [340, 10];
  const x = (value) => left + (value / 100) * (width - 2 * left);
  const rule = threshold === null ? "nothing is flagged" : `flagged below ${threshold.toFixed(0)} %`;
  const parts = [
    svgElement("rect", { class: "high", x: x(threshold ?? 0), y: 18, width: x(100) - x(threshold ?? 0), height: 14 }),
    svgElement("path", { class: "needle", d: `M${x(percentile)} 30 l-6 -16 h12 z` }),
    svgElement("text", { x: left, y: 48 }, "unlike the data"),
    svgElement("text", { x: width - left, y: 48, "text-anchor": "end" }, "typical"),
  ];
  if (threshold !== null) {
    parts.unshift(svgElement("rect", { class: "low", x: x(0), y: 18, width: x(threshold) - x(0), height: 14 }));
    parts.push(svgElement("line", { class: "mark", x1: x(threshold), x2: x(threshold), y1: 14, y2: 36 }));
  }
  const label = `More typical than ${percentile.toFixed(0)} % of the validation data; ${rule}`;
  return element("div", {}, chart(width, 52, label, ...parts),
    element("p", { className: "quiet", textContent: `${label}.` }));
}

/** Return a reliability diagram; the area of a dot is proportional to its number of rows. */
export function reliability({ confidence, accuracy, count }) {
  const [size, left] = [240, 34];
  const at = (v) => [left + v[0] * (size - left - 10), size - left - v[1] * (size - left - 10)];
  const total = count.reduce((a, b) => a + b, 0);
  const points = confidence.map((c, i) => at([c, accuracy[i]]));
  return chart(size, size, "Reliability: accuracy by confidence; on the diagonal both are equal",
    svgElement("path", { class: "axis", d: `M${at([0, 1])} L${at([0, 0])} L${at([1, 0])}` }),
    svgElement("path", { class: "axis", d: `M${at([0, 0])} L${at([1, 1])}`, "stroke-dasharray": 4 }),
    svgElement("path", { class: "data", d: `M${points.join(" L")}` }),
    ...points.map(([cx, cy], i) =>
      svgElement("circle", { class: "fill", cx, cy, r: 2 + 8 * Math.sqrt(count[i] / total) })),
    svgElement("text", { x: size / 2, y: size - 10, "text-anchor": "middle" }, "confidence"),
    svgElement("text", { x: 12, y: size / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${size / 2})` },
      "accuracy"),
    ...[0, 1].map((v) => svgElement("text", { x: at([v, 0])[0] - 4, y: size - left + 14 }, `${v}`)));
}

/** Return a line chart of shares over time, with gaps where a value is null. */
export function history(values, label) {
  const [width, height, left] = [520, 130, 44];
  const x = (i) => left + (i / Math.max(values.length - 1, 1)) * (width - left - 8);
  const y = (v) => 10 + (1 - v) * (height - 24);
  let path = "", command = "M";
  values.forEach((value, i) => {
    if (value === null) { command = "M"; return; }
    path += `${command}${x(i).toFixed(1)} ${y(value).toFixed(1)}`;
    command = "L";
  });
  return chart(width, height, label,
    svgElement("path", { class: "axis", d: `M${left} ${y(1)} V${y(0)} H${width - 8}` }),
    svgElement("path", { class: "data", d: path || "M0 0", "stroke-linecap": "round" }),
    ...[0, 0.5, 1].map((v) => svgElement("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, percent(v, 0))));
}

/** Return a table; the first cell of each row is its header. */
export function table(head, rows, caption) {
  const headCells = head.map((v) => element("th", { textContent: v, scope: "col" }));
  const bodyRows = rows.map(([first, ...rest]) => element("tr", {},
    element("th", { textContent: first, scope: "row" }),
    ...rest.map((v) => element("td", { textContent: v }))));
  const node = element("table", {},
    element("caption", { className: "unseen", textContent: caption }),
    element("thead", {}, element("tr", {}, ...headCells)),
    element("tbody", {}, ...bodyRows));
  return element("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: caption }, node);
}
