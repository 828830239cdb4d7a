// Connects the parts of the page: settings, results and their display.
import { describeMatch, hint, showMatch, showResponses, showResult } from "./detail.js";
import { keyHelp, listenForKeys } from "./keys.js";
import { coveredArea } from "./layout.js";
import { Operation, cancelOperations } from "./operations.js";
import { $, element, showError } from "./page.js";
import { Player, reducedMotion } from "./player.js";
import { ResultPanel, showCounts, showLabel } from "./results.js";
import { copyText, download, encode, snapshot } from "./saving.js";
import { embedded, server } from "./source.js";
import { Stage } from "./stage.js";
import { cropPatches } from "./patches.js";
import { Swipe } from "./swipe.js";
import { addThemeButton } from "./theme.js";
import { isDragging, listenForFiles, loadCrops, loadImage, positionDropZones, showNames, uploadImages } from "./upload.js";
import { displayName, emptyMessage, number } from "./text.js";

const LINE_COUNTS = [0, 50, 100, 250, 500, 1000, 2500, 5000, Infinity];  // steps of the slider
const SECOND_FILE_DELAY = 1000;  // milliseconds to wait for a second file before matching
const WIDE = 900;  // pixels; in wider windows, stepping through matches opens the drawer
const embeddedData = $("embedded-data");
const source = embeddedData ? embedded(JSON.parse(embeddedData.textContent)) : server;

let version = Date.now(), mode = "matches", hoverRequest = null, scrollToMatch = false, details = new Map();
let aligning = null, responding = null, waiting = null;  // pending operations
let upload = null;  // {operation, files} of a pending upload
let lastSettings = null;  // of the last result
const replacedSides = new Set();  // sides whose images were replaced since the last result
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
const filter = () => ({
  inliers: pressed("inliers"), propagated: pressed("propagated"), outliers: pressed("outliers"), maxLines: LINE_COUNTS[$("lines").value],
});

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
  $("empty-text").textContent = primary.stale || mode === "swipe" ? "" : primary.error || emptyMessage(result);
  $("empty").hidden = !$("empty-text").textContent;
  $("rematch").hidden = Boolean(result);
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
  stopWaiting();
  closeAlignment();
  details = new Map();
  hint($("detail"), "Hover over a match or step through the matches.");
  const arrived = primary.request(settings(), filter());
  if (mode === "compare") compare();
  refresh();
  if (await arrived) {
    lastSettings = primary.settings;
    replacedSides.clear();
    performance.mark("matched");
  }
  if (primary.stale) return;  // the settings have changed since
  refresh();
  if (mode === "swipe" && canWarp()) showSwipe(); else if (mode === "swipe") setMode("matches");
}

const comparisonSettings = () => ({ ...settings(), descriptor: comparedDescriptor() });

const isCompared = () => (comparison.stale || comparison.result !== null)
  && JSON.stringify(comparison.settings) === JSON.stringify(comparisonSettings());

async function compare() {
  await comparison.request(comparisonSettings(), filter());
  refresh();
}

const showSwipe = () => swipe.show(primary.stage.images.a, primary.stage.images.b, primary.result.matrix);

function stopWaiting() {
  waiting?.abort();
  waiting = null;
}

function closeAlignment() {
  aligning?.abort();
  aligning = null;
  player.close();
}

// Selecting the current mode again returns to the matches.
function setMode(name) {
  const next = name === mode ? "matches" : name;
  if ($(`mode-${next}`).disabled) return;
  closeAlignment();
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
    if (!isCompared()) compare();
  }
  refresh();
}

// Two stages side by side or stacked, whichever shows the images larger.
function split() {
  const { width, height } = $("stages").getBoundingClientRect(), { a, b } = primary.stage.images;
  $("stages").classList.toggle("column", coveredArea(width, height / 2, a, b) > coveredArea(width / 2, height, a, b));
}

// Resolves to false if the images were replaced meanwhile.
async function showImages(state) {
  const current = version;
  showNames(state.images, source.live);
  await Promise.all(Object.entries(state.images).map(async ([side, image]) => {
    const bitmap = await loadImage(source.preview(side, current));
    if (version === current) primary.stage.setImage(side, { ...image, bitmap });
  }));
  performance.mark("shown");
  refresh();
  return version === current;
}

// Replaces one or both images, {a: file, b: file}, and matches them once.
async function replaceImages(files) {
  upload?.operation.abort();  // a second file while the first is uploaded: upload both
  const both = { ...upload?.files, ...files }, names = Object.values(both).map(({ name }) => name).join(" and ");
  const operation = new Operation(`Reading ${names}`, source, () => { upload = null; });
  const current = { operation, files: both };
  upload = current;
  try {
    const state = await operation.run((options) => uploadImages(source, both, options));
    if (upload !== current) return;
    upload = null;
    for (const side of Object.keys(both)) replacedSides.add(side);
    stopWaiting();
    await startOver(state);
  } catch (error) {
    if (upload !== current && upload) return;
    upload = null;
    showError(error);
  }
}

// Shows other images, and matches them.
async function startOver(state) {
  version += 1;
  for (const panel of [primary, comparison]) panel.reset();
  responding?.operation.abort();
  responding = null;
  hint($("responses"), "Click a point in an image.");
  setMode("matches");
  if (await showImages(state) && await waitForSecondFile()) await match();
}

// If only one image of a matched pair was replaced, waits a moment, because the other may follow. Resolves to false if
// it does, or if the user cancels.
async function waitForSecondFile() {
  if (!lastSettings || replacedSides.size !== 1) return true;
  const operation = new Operation("Waiting for a second file before matching", source, () => { waiting = null; });
  waiting = operation;
  while (waiting === operation && (upload || isDragging() || performance.now() - operation.start < SECOND_FILE_DELAY)) {
    await new Promise((done) => setTimeout(done, 50));
  }
  operation.end();
  return waiting === operation;
}

// Cancels what is running and returns to the previous result; returns false if nothing is running.
function cancel() {
  const matching = primary.stale, replaced = upload || waiting || (matching && replacedSides.size > 0);
  if (!cancelOperations()) return false;
  const previous = replaced ? lastSettings : matching ? primary.settings : null;
  for (const [id, value] of Object.entries(previous ?? {})) $(id).value = value;
  if (replaced && previous) restoreImages();
  else if (mode === "compare" && !isCompared()) setMode("matches");
  refresh();
  return true;
}

async function restoreImages() {
  replacedSides.clear();
  try { await startOver(await source.restore()); } catch (error) { showError(error); }
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
  const before = responding?.before ?? [...$("responses").childNodes];
  responding?.operation.abort();
  const operation = new Operation("Computing response maps", source, () => { responding = null; $("responses").replaceChildren(...before); });
  const current = { operation, before };
  responding = current;
  hint($("responses"), "…");
  let show;
  try {
    const responses = await operation.run((options) => source.responses(side, { x, y, s }, options));
    show = () => showResponses($("responses"), responses);
  } catch (error) { show = () => hint($("responses"), error.message); }
  if (responding !== current) return;
  responding = null;
  show();
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
  const operation = new Operation("Aligning", source);
  aligning = operation;
  try { player.open(await operation.run((options) => source.align({ x, y, size }, options))); } catch (error) { showError(error); }
}

async function save(kind) {
  try {
    if (kind === "page") {
      const compared = mode === "compare" ? comparedDescriptor() : "";
      const page = await new Operation("Writing the page", source).run((options) => source.page(settings(), compared, options));
      download(page, "matches.html");
    } else if (mode === "swipe") download(await encode(swipe.canvas), "before-after.png");
    else {
      const panels = mode === "compare" ? [primary, comparison] : [primary];
      download(await snapshot(panels, { column: $("stages").classList.contains("column"), outliers: pressed("outliers") }), "matches.png");
    }
  } catch (error) { showError(error); }
}

// Closes the menu, cancels what is running, or closes player or drawer; returns false if there is nothing to close.
function close() {
  if ($("saving").matches(":popover-open")) $("saving").hidePopover(); else if (cancel()) return true;
  else if (player.active) player.close();
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
    "save-image": () => save("image"), "save-page": () => save("page"), cancel, rematch: match,
  };
  for (const [id, action] of Object.entries(clicks)) $(id).addEventListener("click", action);
  for (const id of ["inliers", "propagated", "outliers"]) {
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
  if (source.live) listenForFiles([primary.stage, comparison.stage], replaceImages);
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
  for (const [id, value] of Object.entries(state.settings)) $(id).value = value ?? "";
  await showImages(state);
  await match();
}

start().catch(showError);
