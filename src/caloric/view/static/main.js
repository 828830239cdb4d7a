// Connects the parts of the page: settings, results and their display.
import { describeMatch, hint, showMatch, showResponses, showResult } from "./detail.js";
import { keyHelp, listenForKeys } from "./keys.js";
import { coveredArea } from "./layout.js";
import { $, element, showError, showProgress } from "./page.js";
import { Player, reducedMotion } from "./player.js";
import { ResultPanel, showCounts, showLabel } from "./results.js";
import { copyText, download, encode, snapshot } from "./saving.js";
import { embedded, server } from "./source.js";
import { Stage } from "./stage.js";
import { cropPatches } from "./patches.js";
import { Swipe } from "./swipe.js";
import { addThemeButton, remember, remembered } from "./theme.js";
import { listenForFiles, loadCrops, loadImage, positionDropZones, showNames, uploadImage } from "./upload.js";
import { displayName, emptyMessage, number } from "./text.js";

const LINE_COUNTS = [0, 50, 100, 250, 500, 1000, 2500, 5000, Infinity];  // steps of the slider
const USED_KEY = "caloric-seen";  // set in the local storage after the first use
const WIDE = 900;  // pixels; in wider windows, stepping through matches opens the drawer
const embeddedData = $("embedded-data");
const source = embeddedData ? embedded(JSON.parse(embeddedData.textContent)) : server;

let version = Date.now(), mode = "matches", hoverRequest = null, scrollToMatch = false, details = new Map();
const primary = new ResultPanel(new Stage($("primary"), stageCallbacks("primary")), source);
const comparison = new ResultPanel(new Stage($("comparison"), stageCallbacks("comparison")), source);
const swipe = new Swipe($("swipe"));
const player = new Player((path) => {
  primary.stage.path = path;
  primary.stage.draw();
});

const settings = () => Object.fromEntries(["descriptor", "model", "views", "ratio", "threshold"].map((id) => [id, $(id).value]));
const comparedDescriptor = () => (source.live ? (settings().descriptor === "sift" ? "caloric" : "sift") : source.comparedDescriptor);
const pressed = (id) => $(id).getAttribute("aria-pressed") === "true";
const filter = () => ({ inliers: pressed("inliers"), outliers: pressed("outliers"), maxLines: LINE_COUNTS[$("lines").value] });

// Callbacks of a stage; both stages show the same views.
function stageCallbacks(which) {
  const isPrimary = which === "primary";
  const self = () => (isPrimary ? primary : comparison), other = () => (isPrimary ? comparison : primary);
  return {
    hover: (i) => showDetail(self(), i),
    click: (side, x, y, i) => showResponsesAt(self(), side, x, y, i),
    view: () => {
      if (mode === "compare" && other().stage.width) other().stage.follow(self().stage.views, self().stage.moved);
      if (isPrimary) loadCrops(primary.stage, source, version);
    },
    layout: () => { if (isPrimary) positionDropZones(self().stage); },
  };
}

// Whether the first image can be warped onto the second.
const canWarp = () => Boolean(primary.result?.matrix) && primary.result.model !== "fundamental";

function refresh() {
  const { result } = primary, warpable = canWarp();
  const both = Boolean(primary.stage.images.a && primary.stage.images.b);
  showCounts(primary);
  showLabel(primary, mode === "compare");
  showLabel(comparison, mode === "compare");
  showResult($("result"), primary.stale ? null : result);
  $("empty").textContent = primary.stale || mode === "swipe" ? "" : emptyMessage(result);
  $("empty").hidden = !$("empty").textContent;
  $("mode-swipe").disabled = !warpable || primary.stale;
  $("swipe").classList.toggle("stale", primary.stale);
  $("mode-swipe").title = warpable ? "Show the first image warped onto the second (b)" : "Needs a reliable homography or affine map";
  $("mode-compare").disabled = !both || !comparedDescriptor();
  $("mode-compare").textContent = `Compare with ${displayName(comparedDescriptor() ?? "sift")}`;
  $("mode-compare").title = comparedDescriptor() ? "Show the matches of both descriptors (s)" : "This file contains only one result";
  $("legend").hidden = !both || mode === "swipe";
  $("zoom").hidden = !both;
  $("align").disabled = !both || (!source.live && !source.alignment);
  $("save").disabled = !result || primary.stale;
  // Each word is an element, since lines would also break after the hyphens of an option.
  $("command").replaceChildren(...(result?.command ?? "").split(" ").flatMap((word, k) => [k ? " " : "", element("span", { textContent: word })]));
  for (const id of ["previous", "next", "respond"]) $(id).disabled = !result?.inlier.length;
  const available = primary.stage.visible.length, { maxLines } = filter();
  $("lines-value").textContent = !available ? "" : maxLines >= available ? `all ${number(available)}` : number(maxLines);
}

function refilter() {
  for (const panel of [primary, comparison]) {
    panel.stage.dim = $("dimmed").checked;
    if (!panel.stale) panel.show(filter());
  }
  refresh();
}

async function match() {
  if (!primary.stage.images.a || !primary.stage.images.b) return;
  player.close();
  details = new Map();
  hint($("detail"), "Hover over a match or step through the matches.");
  const arrived = primary.request(settings(), filter());
  if (mode === "compare") compare();
  refresh();
  if (await arrived) performance.mark("matched");
  if (primary.stale) return;  // the settings have changed since
  refresh();
  if (mode === "swipe" && canWarp()) showSwipe(); else if (mode === "swipe") setMode("matches");
  if (primary.result) playOnFirstUse();
}

const comparisonSettings = () => ({ ...settings(), descriptor: comparedDescriptor() });

async function compare() {
  await comparison.request(comparisonSettings(), filter());
  refresh();
}

const showSwipe = () => swipe.show(primary.stage.images.a, primary.stage.images.b, primary.result.matrix);

// Plays the alignment automatically on first use, unless reduced motion is preferred.
async function playOnFirstUse() {
  const { result } = primary;
  if (remembered(USED_KEY) || reducedMotion() || !result.square) return;
  remember(USED_KEY, "yes");
  const [x, y, size] = result.square;
  try {
    const alignment = await source.align({ x, y, size });
    if (alignment?.converged && primary.result === result && mode === "matches") player.open(alignment, true);
  } catch { /* optional */ }
}

// Selecting the current mode again returns to the matches.
function setMode(name) {
  const next = name === mode ? "matches" : name;
  if ($(`mode-${next}`).disabled) return;
  player.close();
  mode = next;
  for (const other of ["matches", "swipe", "compare"]) $(`mode-${other}`).setAttribute("aria-pressed", other === mode);
  $("primary").hidden = mode === "swipe";
  $("comparison").hidden = mode !== "compare";
  $("swipe").hidden = mode !== "swipe";
  split();
  if (mode === "swipe") showSwipe();
  if (mode === "compare") {
    primary.stage.moved = false;  // fit the images to half of the window
    primary.stage.resize();
    for (const side of ["a", "b"]) comparison.stage.setImage(side, primary.stage.images[side]);
    if (!comparison.result || JSON.stringify(comparison.settings) !== JSON.stringify(comparisonSettings())) compare();
  }
  refresh();
}

// Two stages side by side or stacked, whichever shows the images larger.
function split() {
  const { width, height } = $("stages").getBoundingClientRect(), { a, b } = primary.stage.images;
  $("stages").classList.toggle("column", coveredArea(width, height / 2, a, b) > coveredArea(width / 2, height, a, b));
}

async function show(state) {
  showNames(state.images, source.live);
  await Promise.all(Object.entries(state.images).map(async ([side, image]) => {
    primary.stage.setImage(side, { ...image, bitmap: await loadImage(source.preview(side, version)) });
  }));
  performance.mark("shown");
  refresh();
  await match();
}

async function replaceImage(side, file) {
  const state = await uploadImage(source, side, file);
  if (!state) return;
  version += 1;
  for (const panel of [primary, comparison]) panel.reset();
  hint($("responses"), "Click a point in an image.");
  setMode("matches");
  await show(state).catch(showError);
}

// Shows the patches of a match in the drawer, and announces the match to screen readers.
async function showDetail(panel, i) {
  hoverRequest?.abort();
  if (!panel.result || panel.stale || i < 0) return;
  $("announcement").textContent = describeMatch(panel.result, i);
  if ($("drawer").hidden) return;
  const { result } = panel, key = `${result.descriptor} ${i}`, controller = new AbortController();
  hoverRequest = controller;
  try {
    if (!details.has(key)) {
      await new Promise((done) => setTimeout(done, 60));  // the pointer may only pass over it
      if (controller.signal.aborted) return;
      const detail = source.live ? source.detail(panel.settings, i, controller.signal) : cropPatches(result, i, panel.stage.images);
      details.set(key, await detail);
    }
    if (controller.signal.aborted) return;
    showMatch($("detail"), result, i, details.get(key));
    if (scrollToMatch) scrollTo("match");
    scrollToMatch = false;
  } catch (error) { showError(error); }
}

function openDrawer(open) {
  $("drawer").hidden = !open;
  $("details").setAttribute("aria-expanded", open);
  if (open) showDetail(primary, primary.stage.selected);
}

function step(count) {
  if (primary.stale || mode === "swipe") return;
  if (window.innerWidth >= WIDE) openDrawer(true);
  scrollToMatch = true;
  primary.stage.step(count);
}

const scrollTo = (id) => $(id).scrollIntoView({ block: "nearest", behavior: reducedMotion() ? "auto" : "smooth" });

async function showResponsesAt(panel, side, x, y, i) {
  openDrawer(true);
  if (!source.live) return;
  const s = i >= 0 ? panel.result[side].s[i] : Math.max(1.5, 12 / panel.stage.views[side].scale);
  hint($("responses"), "…");
  try { showResponses($("responses"), await source.responses(side, { x, y, s })); } catch (error) {
    hint($("responses"), error.message);
  }
  scrollTo("maps");
}

function showResponsesAtSelected() {
  if (!primary.result || primary.stale) return;
  if (primary.stage.selected < 0) primary.stage.step(1);
  const { result, stage: { selected } } = primary;
  if (selected >= 0) showResponsesAt(primary, "a", result.a.x[selected], result.a.y[selected], selected);
}

// At the selected match; otherwise at the square that the result suggests, or at the center.
async function align() {
  if ($("align").disabled) return;
  setMode("matches");
  const { selected, images } = primary.stage, { result } = primary;
  const [x, y, size] = selected >= 0 ? [result.a.x[selected], result.a.y[selected], 128]
    : result?.square ?? [images.a.width / 2, images.a.height / 2, 128];
  showProgress("Aligning…");
  try { player.open(await source.align({ x, y, size })); } catch (error) { showError(error); }
  showProgress("");
}

async function save(kind) {
  try {
    if (kind === "page") {
      showProgress("Writing the page…");
      download(await source.page(settings(), mode === "compare" ? comparedDescriptor() : ""), "matches.html");
    } else if (mode === "swipe") download(await encode(swipe.canvas), "before-after.png");
    else {
      const panels = mode === "compare" ? [primary, comparison] : [primary];
      download(await snapshot(panels, { column: $("stages").classList.contains("column"), outliers: pressed("outliers") }), "matches.png");
    }
  } catch (error) { showError(error); }
  showProgress("");
}

// Closes the topmost of player, menu and drawer; returns false if none is open.
function close() {
  if (player.active) player.close(); else if ($("saving").matches(":popover-open")) $("saving").hidePopover();
  else if (!$("drawer").hidden) { openDrawer(false); $("details").focus(); } else return false;
  return true;
}

// A function that moves what the current mode shows, by a method of its view.
function navigate(method) {
  return (...values) => {
    if (mode === "swipe") swipe[method](...values);
    else if (primary.stage.width) primary.stage[method === "zoom" ? "zoomCenter" : method](...values);
  };
}

function addListeners() {
  const actions = {
    step, align, close, respond: showResponsesAtSelected, zoom: navigate("zoom"), fit: navigate("fit"), mode: setMode,
    pan: (dx, dy) => { if (mode === "swipe" && dx) swipe.moveDivider(swipe.divided + dx / 1500); else navigate("pan")(dx, dy); },
    press: (id) => $(id).click(), help: () => $("help").showModal(),
  };
  const clicks = {
    previous: () => step(-1), next: () => step(1), respond: showResponsesAtSelected, align, fit: actions.fit, "show-help": actions.help,
    "zoom-in": () => actions.zoom(1.25), "zoom-out": () => actions.zoom(0.8), details: () => openDrawer($("drawer").hidden),
    "mode-matches": () => setMode("matches"), "mode-swipe": () => setMode("swipe"), "mode-compare": () => setMode("compare"),
    "save-image": () => save("image"), "save-page": () => save("page"),
  };
  for (const [id, action] of Object.entries(clicks)) $(id).addEventListener("click", action);
  for (const id of ["inliers", "outliers"]) {
    $(id).addEventListener("click", () => { $(id).setAttribute("aria-pressed", !pressed(id)); refilter(); });
  }
  for (const id of ["lines", "dimmed"]) $(id).addEventListener("input", refilter);
  for (const id of ["descriptor", "model", "views", "ratio", "threshold"]) {
    let byPointer = false;  // a list chosen from with the pointer releases the focus, so that shortcuts work again
    $(id).addEventListener("pointerdown", () => { byPointer = true; });
    $(id).addEventListener("keydown", () => { byPointer = false; });
    $(id).addEventListener("change", () => { if (byPointer && $(id).matches("select")) $(id).blur(); });
    $(id).addEventListener("change", () => { if ($(id).checkValidity()) match(); else $(id).reportValidity(); });
  }
  $("settings").addEventListener("submit", (e) => e.preventDefault());
  $("linked").addEventListener("input", () => { for (const panel of [primary, comparison]) panel.stage.link = $("linked").checked; });
  $("copy").addEventListener("click", async () => {
    $("copy").textContent = (await copyText($("command"))) ? "Copied" : "Copy the selected text";
    setTimeout(() => { $("copy").textContent = "Copy command"; }, 2500);
  });
  $("help-keys").replaceChildren(...keyHelp().flatMap(([label, description]) => [
    element("dt", {}, ...label.split(" ").map((key) => element("kbd", { textContent: key }))), element("dd", { textContent: description })]));
  new ResizeObserver(split).observe($("stages"));
  addThemeButton($("theme"));
  listenForKeys(actions);
  if (source.live) listenForFiles(primary.stage, replaceImage);
  else for (const id of ["settings", "maps", "save-page"]) $(id).hidden = true;
}

async function start() {
  $("lines").max = LINE_COUNTS.length - 1;
  $("lines").value = LINE_COUNTS.indexOf(window.innerWidth < 620 ? 100 : 250);
  addListeners();
  refresh();
  const state = await source.state();
  for (const [id, names] of [["descriptor", state.descriptors], ["model", state.models], ["views", state.views]]) {
    $(id).replaceChildren(...names.map((name) => new Option(Number(name) ? `up to tilt ${name}` : name, name)));
  }
  for (const [id, value] of Object.entries(state.settings)) $(id).value = value;
  await show(state);
}

start().catch(showError);
