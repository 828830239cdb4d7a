// Images that are dropped or selected, and crops of large ones at higher resolution.
import { $, complain, doing } from "./page.js";

export function load(uri) {
  return new Promise((done, failed) => {
    const image = new Image();
    image.onload = () => done(image);
    image.onerror = () => failed(new Error("An image could not be displayed."));
    image.src = uri;
  });
}

// Calls put(side, file) for every image.
export function uploads(stage, put) {
  for (const side of ["a", "b"]) {
    $(`file-${side}`).addEventListener("change", (e) => { if (e.target.files[0]) put(side, e.target.files[0]); });
  }
  const over = (e) => {
    const box = stage.section.getBoundingClientRect(), x = e.clientX - box.left, y = e.clientY - box.top;
    const inside = x >= 0 && y >= 0 && x < box.width && y < box.height;
    return inside ? stage.sideAt(x, y) : null;
  };
  const mark = (side) => { for (const one of ["a", "b"]) $(`drop-${one}`).classList.toggle("over", one === side); };
  document.addEventListener("dragover", (e) => { e.preventDefault(); mark(over(e)); });
  document.addEventListener("dragleave", (e) => { if (!e.relatedTarget) mark(null); });
  document.addEventListener("drop", (e) => {
    e.preventDefault();
    mark(null);
    const side = over(e) ?? (stage.pictures.a ? "b" : "a"), file = e.dataTransfer.files[0];
    if (file) put(side, file);
  });
}

// The drop zones cover their panes.
export function placeDrops(stage) {
  for (const side of ["a", "b"]) {
    const pane = stage.panes[side], { style, classList } = $(`drop-${side}`);
    classList.toggle("slim", pane.w < 170);
    for (const [name, value] of [["left", pane.x], ["top", pane.y], ["width", pane.w], ["height", pane.h]]) {
      style.setProperty(`--${name}`, `${value}px`);
    }
  }
}

export function showNames(pictures, live) {
  for (const side of ["a", "b"]) {
    const own = pictures[side], box = $(`drop-${side}`);
    box.hidden = !live && !own;
    box.classList.toggle("loaded", Boolean(own));
    if (!own) continue;
    box.querySelector("p").textContent = own.name;
    box.querySelector("p").title = `${own.name}, ${own.width} × ${own.height}`;
    box.querySelector("label").hidden = !live;
    box.querySelector("label span").textContent = "Replace";
  }
}

export async function put(source, side, file) {
  doing(`reading ${file.name} …`);
  try { return await source.put(side, file); } catch (error) { complain(error); return null; } finally { doing(""); }
}

// A crop of a large image, if the zoom exceeds the resolution of the preview.
let cropping = 0;
export function sharpen(stage, source, version) {
  clearTimeout(cropping);
  if (!source.live) return;
  cropping = setTimeout(async () => {
    for (const side of ["a", "b"]) {
      const p = stage.pictures[side], v = stage.views[side], pane = stage.panes[side];
      if (!p?.image || v.scale * p.width <= 1.2 * p.image.width || p.image.width >= p.width) continue;
      const x = Math.max(0, Math.floor(v.x - pane.w / v.scale / 2)), y = Math.max(0, Math.floor(v.y - pane.h / v.scale / 2));
      const w = Math.min(p.width - x, Math.ceil(pane.w / v.scale)), h = Math.min(p.height - y, Math.ceil(pane.h / v.scale));
      if (w < 1 || h < 1) continue;
      try {
        p.part = { image: await load(source.crop(side, { x, y, w, h }, version)), x, y, w, h };
        stage.draw();
      } catch { /* the preview stays */ }
    }
  }, 200);
}
