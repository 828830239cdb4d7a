// Contents of the drawer: the numbers of a result, one match, response maps.
import { element } from "./page.js";
import { facts } from "./words.js";

const figure = (caption, ...content) => element("figure", {}, ...content, element("figcaption", { textContent: caption }));
const picture = (uri, kind, alt) => element("img", { src: uri, className: kind, alt });

const table = (rows) => element("dl", { className: "facts" },
  ...rows.flatMap(([name, value]) => [element("dt", { textContent: name }), element("dd", { textContent: value })]));

const brief = (v) => (v !== 0 && Math.abs(v) < 1e-3 ? v.toExponential(2) : v.toPrecision(4));

// The matrix from the first image to the second, as a table.
function matrix(rows) {
  const cells = rows.map((row) => element("tr", {}, ...row.map((v) => element("td", { textContent: brief(v) }))));
  return element("table", {}, element("caption", { textContent: "Matrix, from first to second" }), ...cells);
}

export function showResult(place, found) {
  if (!found) { hint(place, "Not matched."); return; }
  place.replaceChildren(table(facts(found)));
  if (found.matrix) place.append(matrix(found.matrix));
}

// One descriptor above the other, on the same scale.
function bars(first, second) {
  const w = 680, h = 150, canvas = element("canvas", { width: w, height: h, className: "bars" });
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "The two descriptors, one above the other");
  const c = canvas.getContext("2d"), most = Math.max(1e-9, ...first.map(Math.abs), ...second.map(Math.abs));
  const wide = w / first.length;
  [[first, "#e0713f", h / 4], [second, "#3f9fd0", 3 * h / 4]].forEach(([values, color, zero]) => {
    c.fillStyle = color;
    for (const [i, value] of values.entries()) {
      const [top, height] = [Math.max(0, value), Math.abs(value)].map((v) => (v / most) * h / 4);
      c.fillRect(i * wide, zero - top, Math.max(1, wide - 0.8), height);
    }
    c.fillStyle = "#8a94a0";
    c.fillRect(0, zero, w, 1);
  });
  return canvas;
}

export const matchWords = (found, i) => `Match ${i + 1}, ${found.inlier[i] ? "inlier" : "outlier"}`
  + `, residual ${found.residual[i] >= 1e6 ? "unknown" : `${found.residual[i].toFixed(2)} pixels`}`;

export function showMatch(place, found, i, own) {
  const at = (side) => `${found[side].x[i].toFixed(1)}, ${found[side].y[i].toFixed(1)}`;
  const residual = found.residual[i] >= 1e6 ? "no geometry" : `${found.residual[i].toFixed(2)} px`;
  const rows = [["Match", `${i + 1}, ${found.inlier[i] ? "inlier" : "outlier"}`], ["Residual", residual],
    ["Distance", found.distance[i].toFixed(3)], ["Positions", `${at("a")} and ${at("b")}`]];
  const patches = element("div", { className: "row" });
  for (const [side, name] of [["a", "first"], ["b", "second"]]) {
    patches.append(figure(name, picture(own[side].patch, "patch", `patch in the ${name} image`)));
    if (own[side].density) patches.append(figure("gradients", picture(own[side].density, "patch", `gradients in the ${name} image: brightness is magnitude, hue is direction`)));
  }
  place.replaceChildren(table(rows), patches);
  if (own.a.descriptor) place.append(figure("descriptors: first, second", bars(own.a.descriptor, own.b.descriptor)));
}

export function showResponses(place, found) {
  const names = { sift: "SIFT", heat: "heat diffusion" };
  const parts = Object.entries(found.maps).map(([name, maps]) => figure(`${names[name]}: h(β, ·), β from 0° to 315°`,
    element("div", { className: "maps" }, ...maps.map((uri, k) => picture(uri, "map", `${names[name]}, ${found.angles[k]} degrees`)))));
  place.replaceChildren(element("div", { className: "row" }, figure("patch", picture(found.patch, "patch", "patch")),
    element("p", { className: "hint", textContent: "Response at each position of the patch, for each direction β (brighter is stronger)." })), ...parts);
}

export const hint = (place, text) => place.replaceChildren(element("p", { className: "hint", textContent: text }));
