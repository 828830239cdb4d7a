// One match: patches, densities, descriptors; response maps; the path of an alignment.

const element = (name, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
};

const figure = (caption, content) => element("figure", {}, content, element("figcaption", { textContent: caption }));
const picture = (uri, kind, alt) => element("img", { src: uri, className: kind, alt });

function bars(first, second) {
  const w = 384, h = 96, canvas = element("canvas", { width: w, height: h });
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "The two descriptors, one above the other's negative");
  const c = canvas.getContext("2d"), most = Math.max(1e-9, ...first.map(Math.abs), ...second.map(Math.abs));
  const wide = w / first.length;
  c.fillStyle = "#fff"; c.fillRect(0, 0, w, h);
  first.forEach((value, i) => {
    c.fillStyle = "#b3401c";
    c.fillRect(i * wide, h / 4 - Math.max(0, value) / most * h / 4, Math.max(0.7, wide - 0.5), Math.abs(value) / most * h / 4);
    c.fillStyle = "#22577a";
    c.fillRect(i * wide, 3 * h / 4 - Math.max(0, second[i]) / most * h / 4, Math.max(0.7, wide - 0.5), Math.abs(second[i]) / most * h / 4);
  });
  c.fillStyle = "#8a94a0"; c.fillRect(0, h / 4, w, 1); c.fillRect(0, 3 * h / 4, w, 1);
  return canvas;
}

const fact = (name, value) => element("span", {}, `${name} `, element("b", { textContent: value }));

export function facts(match, found) {
  const residual = found.residual >= 1e6 ? "no geometry" : `${found.residual.toFixed(2)} px`;
  return element("p", { className: "facts" }, fact("Match", `${match + 1}`),
    fact("distance", found.distance.toFixed(3)), fact("ratio to the second", found.ratio.toFixed(3)),
    fact("residual", residual));
}

export function showMatch(place, match, found) {
  const pieces = element("div", { className: "pieces" });
  for (const [side, name] of [["a", "first"], ["b", "second"]]) {
    const own = found[side];
    if (!own) continue;
    const row = element("div", { className: "row" }, picture(own.patch, "patch", `patch in the ${name} picture`));
    if (own.density) row.append(picture(own.density, "patch", "its gradients: brightness how strong, colour which way"));
    pieces.append(figure(own.density ? `${name}: patch and density` : `${name}: patch`, row));
  }
  if (found.a.descriptor) pieces.append(figure("descriptors: first above, second below", bars(found.a.descriptor, found.b.descriptor)));
  fill(place, "match", facts(match, found), pieces);
}

// In place of what was there of the same kind; hints go.
function fill(place, kind, ...children) {
  place.querySelector(".hint")?.remove();
  let own = place.querySelector(`.${kind}`);
  if (!own) { own = element("div", { className: kind }); place.append(own); }
  own.replaceChildren(...children);
  return own;
}

let timer = 0;

export function forget(place) {
  clearInterval(timer);
  place.replaceChildren(element("p", { className: "hint", textContent: "Point at a match, or go from one to the next with n and p." }));
}

export function showResponses(place, found) {
  const pieces = element("div", { className: "pieces" }, figure("the place", picture(found.patch, "patch", "patch")));
  for (const [name, maps] of Object.entries(found.maps)) {
    const row = element("div", { className: "row" });
    maps.forEach((uri, k) => row.append(figure(`${found.angles[k]}°`, picture(uri, "map", `${name}, ${found.angles[k]} degrees`))));
    pieces.append(figure(`h(β, ·) of ${name === "sift" ? "SIFT" : "heat"}, β from +x towards +y`, row));
  }
  fill(place, "responses", pieces);
}

// A slider over the steps, which also plays; told is given each step.
export function showPath(place, found, told) {
  clearInterval(timer);
  const last = found.steps.length - 1;
  const verdict = found.converged ? `found, confidence ${found.confidence.toFixed(2)}` : `not believed: ${found.reason}`;
  if (last < 0) { fill(place, "path", element("p", { className: "facts" }, fact("Alignment of the square", verdict))); return; }
  const slider = element("input", { type: "range", min: 0, max: last, value: 0 });
  slider.setAttribute("aria-label", "Step of the alignment, from coarse to fine");
  const label = element("output"), play = element("button", { type: "button", textContent: "Play" });
  timer = 0;
  const show = () => {
    const step = found.steps[slider.value];
    label.textContent = `σ ${step.sigma.toFixed(2)} px, energy ${step.energy.toPrecision(4)}`;
    told(step);
  };
  const stop = () => { clearInterval(timer); timer = 0; play.textContent = "Play"; };
  play.onclick = () => {
    if (timer) { stop(); return; }
    if (+slider.value === last) slider.value = 0;
    play.textContent = "Pause";
    timer = setInterval(() => { slider.value = +slider.value + 1; show(); if (+slider.value >= last) stop(); }, 180);
  };
  slider.oninput = () => { stop(); show(); };
  const own = fill(place, "path", element("p", { className: "facts" }, fact("Alignment of the square", verdict), play, slider, label));
  place.prepend(own);
  show();
  play.click();
}
