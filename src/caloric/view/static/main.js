import { server, still } from "./source.js";
import { Stage } from "./stage.js";
import { forget, showMatch, showPath, showResponses } from "./detail.js";

const $ = (id) => document.getElementById(id);
const written = document.getElementById("still");
const source = written ? still(JSON.parse(written.textContent)) : server;
const choice = () => ({ descriptor: $("descriptor").value, model: $("model").value });

let version = Date.now(), found = null, asking = null, hovering = null, cropping = 0;
const details = new Map();

function complain(error) {
  if (error.name === "AbortError") return;
  $("error").textContent = error.message;
  $("error").hidden = false;
  clearTimeout(complain.timer);
  complain.timer = setTimeout(() => { $("error").hidden = true; }, 8000);
}

function busy(text) { $("busy").textContent = text; $("busy").hidden = !text; }

const stage = new Stage($("canvas"), { hover: showDetail, click: clicked, view: sharpen });

// Sliders: what is kept of the matches that are here already.
function filter() {
  const ratio = +$("ratio").value, threshold = +$("threshold").value;
  $("ratio-value").textContent = ratio.toFixed(2);
  $("threshold-value").textContent = `${threshold} px`;
  if (!found) return;
  found.threshold = threshold;
  const kept = [], others = [];
  for (let i = 0; i < found.ratio.length && found.ratio[i] <= ratio; i += 1) {
    (found.residual[i] <= threshold ? kept : others).push(i);
  }
  stage.choose(found, kept, $("others").checked ? others : []);
  $("counts").textContent = `${kept.length.toLocaleString("en")} inliers of ${(kept.length + others.length).toLocaleString("en")} `
    + `matches; ${found.features.map((n) => n.toLocaleString("en")).join(" and ")} features`
    + (found.level > 1 ? `, from views with tilts to ${found.level}` : "");
}

async function match() {
  asking?.abort();
  const own = asking = new AbortController();
  details.clear();
  forget($("detail"));
  stage.chosen = -1;
  stage.outline = null;
  busy("matching …");
  try {
    const came = await source.matches(choice(), own.signal);
    if (asking !== own) return;
    found = came;
    asking = null;
    filter();
    performance.mark("matched");
  } catch (error) { complain(error); }
  if (asking === own) asking = null;
  if (!asking) busy("");
}

function load(uri) {
  return new Promise((done, failed) => {
    const image = new Image();
    image.onload = () => done(image);
    image.onerror = () => failed(new Error("a picture could not be shown"));
    image.src = uri;
  });
}

async function show(state) {
  for (const side of ["a", "b"]) {
    const own = state.pictures[side];
    $(`drop-${side}`).hidden = !source.live && !own;
    $(`drop-${side}`).classList.toggle("loaded", Boolean(own));
    if (!own) continue;
    $(`drop-${side}`).querySelector("p").textContent = own.name;
    $(`drop-${side}`).querySelector("p").title = own.name;
    $(`drop-${side}`).querySelector("label").hidden = !source.live;
    $(`drop-${side}`).querySelector("label").firstChild.textContent = "another";
    const image = await load(source.preview(side, version));
    stage.show(side, { ...own, image });
  }
  performance.mark("shown");
  if (state.pictures.a && state.pictures.b) await match();
}

async function put(side, file) {
  busy(`reading ${file.name} …`);
  try {
    const state = await source.put(side, file);
    version += 1;
    found = null;
    stage.found = null;
    await show(state);
  } catch (error) { complain(error); }
  busy("");
}

async function showDetail(i) {
  hovering?.abort();
  if (!found || asking || i < 0) return;
  const known = details.get(i);
  if (known) { showMatch($("detail"), i, known); return; }
  hovering = new AbortController();
  const signal = hovering.signal;
  try {
    await new Promise((done) => setTimeout(done, 60));
    if (signal.aborted) return;
    const own = source.live ? await source.detail(choice(), i, signal) : ownDetail(i);
    details.set(i, own);
    if (!signal.aborted) showMatch($("detail"), i, own);
  } catch (error) { complain(error); }
}

// Without a server: the patches are cut here.
function ownDetail(i) {
  const cut = (side) => {
    const canvas = document.createElement("canvas"), size = 96, reach = 9;
    canvas.width = canvas.height = size;
    const c = canvas.getContext("2d"), f = found[side], p = stage.pictures[side];
    const k = size / (2 * reach * f.s[i]), shrink = p.image.width / p.width;
    c.translate(size / 2, size / 2); c.rotate(-f.t[i]); c.scale(k / shrink, k / shrink);
    c.drawImage(p.image, -(f.x[i] + 0.5) * shrink, -(f.y[i] + 0.5) * shrink);
    return { patch: canvas.toDataURL() };
  };
  return { a: cut("a"), b: cut("b"), distance: found.distance[i], ratio: found.ratio[i], residual: found.residual[i] };
}

async function clicked(side, x, y, i) {
  if (!source.live) return;
  const s = i >= 0 ? found[side].s[i] : Math.max(1.5, 12 / stage.views[side].scale);
  busy("response maps …");
  try { showResponses($("detail"), await source.responses(side, { x, y, s })); } catch (error) { complain(error); }
  busy("");
  if (side === "a" && stage.pictures.b) await alignAt(x, y);
}

async function alignAt(x, y) {
  busy("aligning …");
  try {
    const size = Math.round(Math.min(256, Math.max(64, 160 / stage.views.a.scale)));
    const path = await source.align({ x, y, size });
    const [left, top, side] = path.template;
    const square = [[left, top], [left + side, top], [left + side, top + side], [left, top + side]];
    showPath($("detail"), path, (step) => {
      stage.outline = [["a", square, "#4cc9f0"], ["b", step.corners, "#4cc9f0"]];
      stage.draw();
    });
  } catch (error) { complain(error); }
  busy("");
}

// A part of a large picture, when it is seen closer than the preview shows it.
function sharpen() {
  if (!source.live) return;
  clearTimeout(cropping);
  cropping = setTimeout(async () => {
    for (const side of ["a", "b"]) {
      const p = stage.pictures[side], v = stage.views[side], pane = stage.panes[side];
      if (!p?.image || v.scale * p.width <= 1.2 * p.image.width || p.image.width >= p.width) continue;
      const x = Math.max(0, Math.floor(v.x - pane.w / v.scale / 2)), y = Math.max(0, Math.floor(v.y - pane.h / v.scale / 2));
      const w = Math.min(p.width - x, Math.ceil(pane.w / v.scale)), h = Math.min(p.height - y, Math.ceil(pane.h / v.scale));
      if (w < 1 || h < 1) continue;
      try {
        const image = await load(source.crop(side, { x, y, w, h }, version));
        p.part = { image, x, y, w, h };
        stage.draw();
      } catch { /* the preview stays */ }
    }
  }, 200);
}

function keys(e) {
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  const v = stage.views.a, by = 60 / v.scale;
  const moves = { ArrowLeft: [-by, 0], ArrowRight: [by, 0], ArrowUp: [0, -by], ArrowDown: [0, by] };
  const middle = [stage.panes.a.x + stage.panes.a.w / 2, stage.panes.a.y + stage.panes.a.h / 2];
  const list = stage.kept.length ? stage.kept : stage.others;
  if (moves[e.key]) stage.move("a", { x: v.x + moves[e.key][0], y: v.y + moves[e.key][1], scale: v.scale });
  else if (e.key === "+" || e.key === "=") stage.zoom("a", 1.25, ...middle);
  else if (e.key === "-") stage.zoom("a", 0.8, ...middle);
  else if (e.key === "0") stage.fit();
  else if ((e.key === "n" || e.key === "p") && found && list.length) {
    const at = list.indexOf(stage.chosen), forward = e.key === "n";
    const next = at < 0 ? (forward ? 0 : list.length - 1) : at + (forward ? 1 : -1);
    stage.goTo(list[(next + list.length) % list.length]);
  } else if (e.key === "r" && found && stage.chosen >= 0) {
    clicked("b", found.b.x[stage.chosen], found.b.y[stage.chosen], stage.chosen);
  } else if (e.key === "g" && found && stage.chosen >= 0 && source.live) {
    alignAt(found.a.x[stage.chosen], found.a.y[stage.chosen]);
  } else return;
  e.preventDefault();
}

function wire() {
  $("canvas").addEventListener("keydown", keys);
  for (const id of ["ratio", "threshold", "others"]) $(id).addEventListener("input", filter);
  $("linked").addEventListener("input", () => { stage.link = $("linked").checked; });
  $("fit").addEventListener("click", () => stage.fit());
  for (const id of ["descriptor", "model"]) $(id).addEventListener("change", match);
  $("controls").addEventListener("submit", (e) => e.preventDefault());
  if (!source.live) return;
  for (const side of ["a", "b"]) {
    $(`file-${side}`).addEventListener("change", (e) => { if (e.target.files[0]) put(side, e.target.files[0]); });
  }
  const over = (e) => {
    const box = $("canvas").getBoundingClientRect();
    return stage.sideAt(e.clientX - box.left, e.clientY - box.top);
  };
  document.addEventListener("dragover", (e) => {
    e.preventDefault();
    for (const side of ["a", "b"]) $(`drop-${side}`).classList.toggle("over", over(e) === side);
  });
  document.addEventListener("drop", (e) => {
    e.preventDefault();
    const side = over(e) ?? (stage.pictures.a ? "b" : "a"), file = e.dataTransfer.files[0];
    for (const one of ["a", "b"]) $(`drop-${one}`).classList.remove("over");
    if (file) put(side, file);
  });
}

async function begin() {
  const state = await source.state();
  $("descriptor").replaceChildren(...state.descriptors.map((name) => new Option(name)));
  $("model").replaceChildren(...state.models.map((name) => new Option(name)));
  for (const [id, value] of Object.entries(state.chosen ?? {})) $(id).value = value;
  $("ratio").min = Math.min(0.5, state.defaults.ratio);
  $("threshold").max = Math.max(20, state.defaults.threshold);
  $("ratio").value = state.defaults.ratio;
  $("threshold").value = state.defaults.threshold;
  filter();
  wire();
  await show(state);
}

begin().catch(complain);
