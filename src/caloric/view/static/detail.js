// Contents of the drawer: the properties of a result, one match, response maps.
import { element } from "./page.js";
import { properties } from "./text.js";

const figure = (caption, ...content) => element("figure", {}, ...content, element("figcaption", { textContent: caption }));
const thumbnail = (uri, kind, alt) => element("img", { src: uri, className: kind, alt });

const propertyList = (rows) => element("dl", { className: "properties" },
  ...rows.flatMap(([name, value]) => [element("dt", { textContent: name }), element("dd", { textContent: value })]));

const formatEntry = (v) => (v !== 0 && Math.abs(v) < 1e-3 ? v.toExponential(2) : v.toPrecision(4));

function matrixTable(rows) {
  const cells = rows.map((row) => element("tr", {}, ...row.map((v) => element("td", { textContent: formatEntry(v) }))));
  return element("table", {}, element("caption", { textContent: "Matrix (first to second image)" }), ...cells);
}

export function showResult(container, result) {
  if (!result) { hint(container, "No result."); return; }
  container.replaceChildren(propertyList(properties(result)));
  if (result.matrix) container.append(matrixTable(result.matrix));
}

// A bar chart of two descriptors, one above the other, on the same scale.
function bars(first, second) {
  const w = 680, h = 150, canvas = element("canvas", { width: w, height: h, className: "bars" });
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "The two descriptors, one above the other");
  const c = canvas.getContext("2d"), largest = Math.max(1e-9, ...first.map(Math.abs), ...second.map(Math.abs));
  const barWidth = w / first.length;
  [[first, "#e0713f", h / 4], [second, "#3f9fd0", 3 * h / 4]].forEach(([values, color, zero]) => {
    c.fillStyle = color;
    for (const [i, value] of values.entries()) {
      const [top, height] = [Math.max(0, value), Math.abs(value)].map((v) => (v / largest) * h / 4);
      c.fillRect(i * barWidth, zero - top, Math.max(1, barWidth - 0.8), height);
    }
    c.fillStyle = "#8a94a0";
    c.fillRect(0, zero, w, 1);
  });
  return canvas;
}

const kindOf = (result, i) => `${result.propagated[i] ? "propagated " : ""}${result.inlier[i] ? "inlier" : "outlier"}`;
export const describeMatch = (result, i) => `Match ${i + 1}, ${kindOf(result, i)}`
  + `, residual ${result.residual[i] >= 1e6 ? "unknown" : `${result.residual[i].toFixed(2)} pixels`}`;

export function showMatch(container, result, i, detail) {
  const position = (side) => `${result[side].x[i].toFixed(1)}, ${result[side].y[i].toFixed(1)}`;
  const residual = result.residual[i] >= 1e6 ? "no geometry" : `${result.residual[i].toFixed(2)} px`;
  const rows = [["Match", `${i + 1}, ${kindOf(result, i)}`], ["Residual", residual],
    ["Distance", result.distance[i].toFixed(3)], ["First point", position("a")], ["Second point", position("b")]];
  const patches = element("div", { className: "row" });
  for (const [side, name] of [["a", "first"], ["b", "second"]]) {
    const { patch, density } = detail[side];
    patches.append(figure(side === "a" ? "First" : "Second", thumbnail(patch, "patch", `patch in the ${name} image`)));
    if (density) patches.append(figure("Gradients", thumbnail(density, "patch", `gradients in the ${name} image: brightness is magnitude, hue is direction`)));
  }
  container.replaceChildren(propertyList(rows), patches);
  if (detail.a.descriptor) container.append(figure("Descriptors, the first above the second", bars(detail.a.descriptor, detail.b.descriptor)));
}

export function showResponses(container, responses) {
  const names = { sift: "SIFT", heat: "Heat diffusion" };
  const parts = Object.entries(responses.maps).map(([name, maps]) => figure(`${names[name]}: h(β, ·), β from 0° to 315°`,
    element("div", { className: "maps" }, ...maps.map((uri, k) => thumbnail(uri, "map", `${names[name]}, ${responses.angles[k]} degrees`)))));
  container.replaceChildren(element("div", { className: "row" }, figure("Patch", thumbnail(responses.patch, "patch", "patch")),
    element("p", { className: "hint", textContent: "Response at each position of the patch, for each direction β (brighter is stronger)." })), ...parts);
}

export const hint = (container, text) => container.replaceChildren(element("p", { className: "hint", textContent: text }));
