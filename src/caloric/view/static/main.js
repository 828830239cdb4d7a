// The page: settings -> results -> display. Each part is a separate module; this one connects them.
import { hint, matchWords, showMatch, showResponses, showResult } from "./detail.js";
import { keys, listed } from "./keys.js";
import { filled } from "./layout.js";
import { $, complain, doing, element } from "./page.js";
import { Player, calm } from "./player.js";
import { Shown, label, showCounts } from "./results.js";
import { copied, download, encode, snapshot } from "./saving.js";
import { server, still } from "./source.js";
import { Stage } from "./stage.js";
import { cutPatches } from "./patches.js";
import { Swipe } from "./swipe.js";
import { remember, remembered, themed } from "./theme.js";
import { load, placeDrops, put, sharpen, showNames, uploads } from "./upload.js";
import { nothing, number, title } from "./words.js";

const STEPS = [0, 50, 100, 250, 500, 1000, 2500, 5000, Infinity];  // of the slider of lines
const SEEN = "caloric-seen";
const WIDE = 900;  // pixels of a window in which a choice opens the drawer
const written = $("still");
const source = written ? still(JSON.parse(written.textContent)) : server;

let version = Date.now(), mode = "matches", hovering = null, stepping = false, details = new Map();
const own = new Shown(new Stage($("own"), told("own")), source);
const other = new Shown(new Stage($("beside"), told("other")), source);
const swipe = new Swipe($("swipe"));
const player = new Player((path) => {
  own.stage.path = path;
  own.stage.draw();
});

const settings = () => Object.fromEntries(["descriptor", "model", "views", "ratio", "threshold"].map((id) => [id, $(id).value]));
const beside = () => (source.live ? (settings().descriptor === "sift" ? "caloric" : "sift") : source.other);
const pressed = (id) => $(id).getAttribute("aria-pressed") === "true";
const filter = () => ({ inliers: pressed("inliers"), outliers: pressed("outliers"), most: STEPS[$("lines").value] });

// Callbacks of a stage; both stages share their views.
function told(which) {
  const mine = () => (which === "own" ? own : other), theirs = () => (which === "own" ? other : own);
  return {
    hover: (i) => showDetail(mine(), i),
    click: (side, x, y, i) => respond(mine(), side, x, y, i),
    view: () => {
      if (mode === "beside" && theirs().stage.width) theirs().stage.follow(mine().stage.views, mine().stage.moved);
      if (which === "own") sharpen(own.stage, source, version);
    },
    arranged: () => { if (which === "own") placeDrops(mine().stage); },
  };
}

// Whether the first image can be warped to the second.
const movable = () => Boolean(own.found?.matrix) && own.found.model !== "fundamental";

function refresh() {
  const { found } = own, able = movable();
  const both = Boolean(own.stage.pictures.a && own.stage.pictures.b);
  showCounts(own);
  label(own, mode === "beside");
  label(other, mode === "beside");
  showResult($("result"), own.stale ? null : found);
  $("nothing").textContent = own.stale || mode === "swipe" ? "" : nothing(found);
  $("nothing").hidden = !$("nothing").textContent;
  $("mode-swipe").disabled = !able || own.stale;
  $("swipe").classList.toggle("stale", own.stale);
  $("mode-swipe").title = able ? "The first image warped to the second (b)" : "Needs a reliable homography or affine map";
  $("mode-beside").disabled = !both || !beside();
  $("mode-beside").textContent = `Compare ${title(beside() ?? "sift")}`;
  $("mode-beside").title = beside() ? "The matches of both descriptors (s)" : "This file contains one result only";
  $("legend").hidden = !both || mode === "swipe";
  $("zoom").hidden = !both;
  $("align").disabled = !both || (!source.live && !source.path);
  $("save").disabled = !found || own.stale;
  $("command").textContent = found?.command ?? "";
  for (const id of ["previous", "next", "respond"]) $(id).disabled = !found?.inlier.length;
  const lines = own.stage.visible.length, most = STEPS[$("lines").value];
  $("lines-value").textContent = most >= lines ? `all ${number(lines)}` : number(most);
}

function refilter() {
  for (const shown of [own, other]) {
    shown.stage.dim = $("dimmed").checked;
    if (!shown.stale) shown.show(filter());
  }
  refresh();
}

async function match() {
  if (!own.stage.pictures.a || !own.stage.pictures.b) return;
  player.close();
  details = new Map();
  hint($("detail"), "Hover over a match, or step through the matches.");
  const asked = [own.ask(settings(), filter())];
  if (mode === "beside") asked.push(compare());
  refresh();
  if (await asked[0]) performance.mark("matched");
  if (own.stale) return;  // other settings were chosen meanwhile
  refresh();
  if (mode === "swipe" && movable()) showSwipe(); else if (mode === "swipe") setMode("matches");
  if (own.found) greet();
}

const compared = () => ({ ...settings(), descriptor: beside() });

async function compare() {
  await other.ask(compared(), filter());
  refresh();
}

const showSwipe = () => swipe.show(own.stage.pictures.a, own.stage.pictures.b, own.found.matrix);

// On first use the alignment plays automatically, unless reduced motion is preferred.
async function greet() {
  if (remembered(SEEN) || calm() || !own.found.place) return;
  remember(SEEN, "yes");
  const [x, y, size] = own.found.place, found = own.found;
  try {
    const path = await source.align({ x, y, size });
    if (path?.converged && own.found === found && mode === "matches") player.open(path, true);
  } catch { /* it is optional */ }
}

function setMode(wanted) {
  const next = wanted === mode ? "matches" : wanted;
  if ($(`mode-${next}`).disabled) return;
  player.close();
  mode = next;
  for (const name of ["matches", "swipe", "beside"]) $(`mode-${name}`).setAttribute("aria-pressed", name === mode);
  $("own").hidden = mode === "swipe";
  $("beside").hidden = mode !== "beside";
  $("swipe").hidden = mode !== "swipe";
  split();
  if (mode === "swipe") showSwipe();
  if (mode === "beside") {
    own.stage.moved = false;  // both are whole in what is now half of the window
    own.stage.resize();
    for (const side of ["a", "b"]) other.stage.show(side, own.stage.pictures[side]);
    if (!other.found || JSON.stringify(other.settings) !== JSON.stringify(compared())) compare();
  }
  refresh();
}

// Two stages side by side or stacked, whichever shows the images larger.
function split() {
  const { width, height } = $("shown").getBoundingClientRect(), { a, b } = own.stage.pictures;
  $("shown").classList.toggle("column", filled(width, height / 2, a, b) > filled(width / 2, height, a, b));
}

async function show(state) {
  showNames(state.pictures, source.live);
  await Promise.all(Object.entries(state.pictures).map(async ([side, picture]) => {
    own.stage.show(side, { ...picture, image: await load(source.preview(side, version)) });
  }));
  performance.mark("shown");
  refresh();
  await match();
}

async function given(side, file) {
  const state = await put(source, side, file);
  if (!state) return;
  version += 1;
  for (const shown of [own, other]) shown.forget();
  hint($("responses"), "Click a point of an image.");
  setMode("matches");
  await show(state).catch(complain);
}

// The patches of a match in the drawer, and its numbers for screen readers.
async function showDetail(shown, i) {
  hovering?.abort();
  if (!shown.found || shown.stale || i < 0) return;
  $("announced").textContent = matchWords(shown.found, i);
  if ($("drawer").hidden) return;
  const { found } = shown, key = `${found.descriptor} ${i}`, mine = new AbortController();
  hovering = mine;
  try {
    if (!details.has(key)) {
      await new Promise((done) => setTimeout(done, 60));  // it may be passed by
      if (mine.signal.aborted) return;
      const asked = source.live ? source.detail(shown.settings, i, mine.signal) : cutPatches(found, i, shown.stage.pictures);
      details.set(key, await asked);
    }
    if (mine.signal.aborted) return;
    showMatch($("detail"), found, i, details.get(key));
    if (stepping) scrollTo("match");
    stepping = false;
  } catch (error) { complain(error); }
}

function openDrawer(open) {
  $("drawer").hidden = !open;
  $("details").setAttribute("aria-expanded", open);
  if (open) showDetail(own, own.stage.chosen);
}

function step(by) {
  if (own.stale || mode === "swipe") return;
  if (window.innerWidth >= WIDE) openDrawer(true);
  stepping = true;
  own.stage.step(by);
}

const scrollTo = (id) => $(id).scrollIntoView({ block: "nearest", behavior: calm() ? "auto" : "smooth" });

async function respond(shown, side, x, y, i) {
  openDrawer(true);
  if (!source.live) return;
  const s = i >= 0 ? shown.found[side].s[i] : Math.max(1.5, 12 / shown.stage.views[side].scale);
  hint($("responses"), "…");
  try { showResponses($("responses"), await source.responses(side, { x, y, s })); } catch (error) {
    hint($("responses"), error.message);
  }
  scrollTo("maps");
}

function respondChosen() {
  if (!own.found || own.stale) return;
  if (own.stage.chosen < 0) own.stage.step(1);
  const { chosen } = own.stage;
  if (chosen >= 0) respond(own, "a", own.found.a.x[chosen], own.found.a.y[chosen], chosen);
}

// At the selected match; otherwise at the position that the result suggests, or at the center.
async function align() {
  if ($("align").disabled) return;
  setMode("matches");
  const { chosen, pictures } = own.stage, { found } = own;
  const [x, y, size] = chosen >= 0 ? [found.a.x[chosen], found.a.y[chosen], 128]
    : found?.place ?? [pictures.a.width / 2, pictures.a.height / 2, 128];
  doing("aligning …");
  try { player.open(await source.align({ x, y, size })); } catch (error) { complain(error); }
  doing("");
}

async function save(kind) {
  try {
    if (kind === "page") {
      doing("writing the page …");
      download(await source.page(settings(), mode === "beside" ? beside() : ""), "matches.html");
    } else if (mode === "swipe") download(await encode(swipe.canvas), "before-after.png");
    else {
      const shown = mode === "beside" ? [own, other] : [own];
      download(await snapshot(shown, { column: $("shown").classList.contains("column"), outliers: pressed("outliers") }), "matches.png");
    }
  } catch (error) { complain(error); }
  doing("");
}

function close() {
  if (player.active) player.close(); else if ($("saving").matches(":popover-open")) $("saving").hidePopover();
  else if (!$("drawer").hidden) { openDrawer(false); $("details").focus(); } else return false;
  return true;
}

function move(what) {
  return (...values) => {
    if (mode === "swipe") swipe[what](...values); else if (own.stage.width) own.stage[what === "zoom" ? "zoomMiddle" : what](...values);
  };
}

function wire() {
  const actions = {
    step, align, close, respond: respondChosen, zoom: move("zoom"), fit: move("fit"), mode: setMode,
    pan: (dx, dy) => { if (mode === "swipe" && dx) swipe.to(swipe.at + dx / 1500); else move("pan")(dx, dy); },
    press: (id) => $(id).click(), help: () => $("help").showModal(),
  };
  const clicks = {
    previous: () => step(-1), next: () => step(1), respond: respondChosen, align, fit: actions.fit, ask: actions.help,
    closer: () => actions.zoom(1.25), wider: () => actions.zoom(0.8), details: () => openDrawer($("drawer").hidden),
    "mode-matches": () => setMode("matches"), "mode-swipe": () => setMode("swipe"), "mode-beside": () => setMode("beside"),
    "save-picture": () => save("picture"), "save-page": () => save("page"),
  };
  for (const [id, action] of Object.entries(clicks)) $(id).addEventListener("click", action);
  for (const id of ["inliers", "outliers"]) {
    $(id).addEventListener("click", () => { $(id).setAttribute("aria-pressed", !pressed(id)); refilter(); });
  }
  for (const id of ["lines", "dimmed"]) $(id).addEventListener("input", refilter);
  for (const id of ["descriptor", "model", "views", "ratio", "threshold"]) {
    let pointed = false;  // who chose by mouse goes on with keys of the page, not of the list
    $(id).addEventListener("pointerdown", () => { pointed = true; });
    $(id).addEventListener("keydown", () => { pointed = false; });
    $(id).addEventListener("change", () => { if (pointed && $(id).matches("select")) $(id).blur(); });
    $(id).addEventListener("change", () => { if ($(id).checkValidity()) match(); else $(id).reportValidity(); });
  }
  $("settings").addEventListener("submit", (e) => e.preventDefault());
  $("linked").addEventListener("input", () => { for (const shown of [own, other]) shown.stage.link = $("linked").checked; });
  $("copy").addEventListener("click", async () => {
    $("copy").textContent = (await copied($("command"))) ? "Copied" : "Select and copy it";
    setTimeout(() => { $("copy").textContent = "Copy the command"; }, 2500);
  });
  $("help-keys").replaceChildren(...listed().flatMap(([shown, words]) => [
    element("dt", {}, ...shown.split(" ").map((key) => element("kbd", { textContent: key }))), element("dd", { textContent: words })]));
  new ResizeObserver(split).observe($("shown"));
  themed($("theme"));
  keys(actions);
  if (source.live) uploads(own.stage, given);
  else for (const id of ["settings", "maps", "save-page"]) $(id).hidden = true;
}

async function begin() {
  $("lines").max = STEPS.length - 1;
  $("lines").value = STEPS.indexOf(window.innerWidth < 620 ? 100 : 250);
  wire();
  refresh();
  const state = await source.state();
  for (const [id, names] of [["descriptor", state.descriptors], ["model", state.models], ["views", state.views]]) {
    $(id).replaceChildren(...names.map((name) => new Option(Number(name) ? `up to tilt ${name}` : name, name)));
  }
  for (const [id, value] of Object.entries(state.chosen)) $(id).value = value;
  await show(state);
}

begin().catch(complain);
