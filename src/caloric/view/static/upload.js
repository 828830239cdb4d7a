// Upload of dropped or selected images, and crops of large ones at full resolution.
import { $, showError, showProgress } from "./page.js";

export function loadImage(uri) {
  return new Promise((done, failed) => {
    const image = new Image();
    image.onload = () => done(image);
    image.onerror = () => failed(new Error("An image could not be displayed."));
    image.src = uri;
  });
}

// Calls receive(side, file) for every dropped or selected file.
export function listenForFiles(stage, receive) {
  for (const side of ["a", "b"]) {
    $(`file-${side}`).addEventListener("change", (e) => { if (e.target.files[0]) receive(side, e.target.files[0]); });
  }
  const sideUnder = (e) => {
    const box = stage.section.getBoundingClientRect(), x = e.clientX - box.left, y = e.clientY - box.top;
    const inside = x >= 0 && y >= 0 && x < box.width && y < box.height;
    return inside ? stage.sideAt(x, y) : null;
  };
  const mark = (target) => { for (const side of ["a", "b"]) $(`drop-${side}`).classList.toggle("over", side === target); };
  document.addEventListener("dragover", (e) => { e.preventDefault(); mark(sideUnder(e)); });
  document.addEventListener("dragleave", (e) => { if (!e.relatedTarget) mark(null); });
  document.addEventListener("drop", (e) => {
    e.preventDefault();
    mark(null);
    const side = sideUnder(e) ?? (stage.images.a ? "b" : "a"), file = e.dataTransfer.files[0];
    if (file) receive(side, file);
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

export async function uploadImage(source, side, file) {
  showProgress(`Reading ${file.name}…`);
  try { return await source.upload(side, file); } catch (error) { showError(error); return null; } finally { showProgress(""); }
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
