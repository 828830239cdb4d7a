// Upload of dropped or selected images, and crops of large ones at full resolution.
import { $, showError } from "./page.js";

const MAX_FILES = 2;
const DRAG_PAUSE = 1000;  // milliseconds; a drag over the page repeats its event more often
let lastDrag = -Infinity;

export const isDragging = () => performance.now() - lastDrag < DRAG_PAUSE;

export function loadImage(uri) {
  return new Promise((done, failed) => {
    const image = new Image();
    image.onload = () => done(image);
    image.onerror = () => failed(new Error("An image could not be displayed."));
    image.src = uri;
  });
}

// Calls receive({a: file, b: file}) for two files that were dropped or selected together; one file has the side on
// which it was dropped or selected.
export function listenForFiles(stages, receive) {
  const accept = ([...files], side) => {
    if (files.length === MAX_FILES) receive({ a: files[0], b: files[1] });
    else if (files.length === 1) receive({ [side]: files[0] });
    else if (files.length) showError(new Error(`${files.length} files: choose one or two images.`));
    else showError(new Error("No file: drop one or two image files."));
  };
  for (const side of ["a", "b"]) {
    $(`file-${side}`).addEventListener("change", (e) => {
      if (e.target.files.length) accept(e.target.files, side);
      e.target.value = "";  // so that the same file can be selected again
    });
  }
  const sideUnder = (e) => {
    for (const stage of stages) {
      const box = stage.section.getBoundingClientRect(), x = e.clientX - box.left, y = e.clientY - box.top;
      if (x >= 0 && y >= 0 && x < box.width && y < box.height) return stage.sideAt(x, y);
    }
    return stages[0].images.a && e.clientX >= window.innerWidth / 2 ? "b" : "a";
  };
  const mark = (...targets) => { for (const side of ["a", "b"]) $(`drop-${side}`).classList.toggle("over", targets.includes(side)); };
  document.addEventListener("dragover", (e) => {
    e.preventDefault();
    lastDrag = performance.now();
    if (e.dataTransfer.items.length === MAX_FILES) mark("a", "b"); else mark(sideUnder(e));
  });
  document.addEventListener("dragleave", (e) => { if (!e.relatedTarget) mark(); });
  document.addEventListener("drop", (e) => {
    e.preventDefault();
    lastDrag = -Infinity;
    mark();
    accept(e.dataTransfer.files, sideUnder(e));
  });
}

// Sets the drop zones to their panes.
export function positionDropZones(stage) {
  for (const side of ["a", "b"]) {
    const pane = stage.panes[side], { style, classList } = $(`drop-${side}`);
    classList.toggle("slim", pane.w < 170);
    for (const [name, value] of [["left", pane.x], ["top", pane.y], ["width", pane.w], ["height", pane.h]]) {
      style.setProperty(`--${name}`, `${value}px`);
    }
  }
}

export function showNames(images, live) {
  for (const side of ["a", "b"]) {
    const image = images[side], box = $(`drop-${side}`);
    box.hidden = !live && !image;
    box.classList.toggle("loaded", Boolean(image));
    if (!image) continue;
    box.querySelector("p").textContent = image.name;
    box.querySelector("p").title = `${image.name}, ${image.width} × ${image.height}`;
    box.querySelector("label").hidden = !live;
    box.querySelector("label span").textContent = "Replace";
  }
}

// Uploads {a: file, b: file}, or one of them; resolves to the new state.
export async function uploadImages(source, files, options) {
  for (const file of Object.values(files)) {
    await file.slice(0, 1).arrayBuffer().catch(() => { throw new Error(`${file.name}: cannot be read; choose image files, not folders.`); });
  }
  return source.upload(files, options);
}

// Loads a crop of a large image if the zoom exceeds the resolution of its preview.
let cropTimer = 0;
export function loadCrops(stage, source, version) {
  clearTimeout(cropTimer);
  if (!source.live) return;
  cropTimer = setTimeout(async () => {
    for (const side of ["a", "b"]) {
      const p = stage.images[side], v = stage.views[side], pane = stage.panes[side];
      if (!p?.bitmap || v.scale * p.width <= 1.2 * p.bitmap.width || p.bitmap.width >= p.width) continue;
      const x = Math.max(0, Math.floor(v.x - pane.w / v.scale / 2)), y = Math.max(0, Math.floor(v.y - pane.h / v.scale / 2));
      const w = Math.min(p.width - x, Math.ceil(pane.w / v.scale)), h = Math.min(p.height - y, Math.ceil(pane.h / v.scale));
      if (w < 1 || h < 1) continue;
      try {
        p.crop = { bitmap: await loadImage(source.crop(side, { x, y, w, h }, version)), x, y, w, h };
        stage.draw();
      } catch { /* keep the preview */ }
    }
  }, 200);
}
