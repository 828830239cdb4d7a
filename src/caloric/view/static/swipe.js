// Before / after: the first image, warped onto the second by the geometry, and a divider between them.
import { listenForGestures } from "./gestures.js";

const MAX_SIDE = 1600;  // pixels of the longer side of the warped image

// The inverse (3, 3) of a homography (3, 3) or an affine map (2, 3).
function inverse(matrix) {
  const [[a, b, c], [d, e, f], [g, h, i]] = matrix.length === 3 ? matrix : [...matrix, [0, 0, 1]];
  const cofactors = [[e * i - f * h, c * h - b * i, b * f - c * e], [f * g - d * i, a * i - c * g, c * d - a * f],
    [d * h - e * g, b * g - a * h, a * e - b * d]];
  const det = a * cofactors[0][0] + b * cofactors[1][0] + c * cofactors[2][0];
  return cofactors.map((row) => row.map((v) => v / det));
}

function readPixels(image) {
  const canvas = document.createElement("canvas");
  canvas.width = image.width;
  canvas.height = image.height;
  const c = canvas.getContext("2d", { willReadFrequently: true });
  c.drawImage(image, 0, 0);
  return c.getImageData(0, 0, image.width, image.height);
}

// The first image warped onto the second, with bilinear interpolation; transparent outside.
export function warp(first, second, matrix) {
  const from = readPixels(first.bitmap), shrinkA = first.bitmap.width / first.width;
  const shrinkB = Math.min(1, MAX_SIDE / Math.max(second.width, second.height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(second.width * shrinkB));
  canvas.height = Math.max(1, Math.round(second.height * shrinkB));
  const c = canvas.getContext("2d"), out = c.createImageData(canvas.width, canvas.height);
  const [r0, r1, r2] = inverse(matrix), w = from.width, pixels = from.data;
  for (let v = 0, k = 0; v < out.height; v += 1) for (let u = 0; u < out.width; u += 1, k += 4) {
    const x = (u + 0.5) / shrinkB - 0.5, y = (v + 0.5) / shrinkB - 0.5, z = r2[0] * x + r2[1] * y + r2[2];
    const px = ((r0[0] * x + r0[1] * y + r0[2]) / z + 0.5) * shrinkA - 0.5;
    const py = ((r1[0] * x + r1[1] * y + r1[2]) / z + 0.5) * shrinkA - 0.5;
    const inside = Math.min(px, py, w - 1 - px, from.height - 1 - py);
    if (!(inside > 0)) continue;
    const i = Math.floor(px), j = Math.floor(py), s = px - i, t = py - j, at = 4 * (j * w + i);
    for (let n = 0; n < 3; n += 1) {
      const top = pixels[at + n] * (1 - s) + pixels[at + 4 + n] * s;
      const low = pixels[at + 4 * w + n] * (1 - s) + pixels[at + 4 * w + 4 + n] * s;
      out.data[k + n] = top * (1 - t) + low * t;
    }
    out.data[k + 3] = 255 * Math.min(1, inside);  // antialiased border
  }
  c.putImageData(out, 0, 0);
  return canvas;
}

export class Swipe {
  constructor(section) {
    this.section = section;
    this.canvas = section.querySelector("canvas");
    this.divider = section.querySelector("#divider");
    this.divided = 0.5;
    this.frameRequested = false;
    listenForGestures(this.canvas, {
      hover: () => {},
      click: (x) => this.moveDivider(x / this.width),
      drag: (_x, _y, dx, dy) => this.pan(-dx, -dy),
      zoom: (factor, x, y) => this.zoom(factor, x, y),
    });
    this.divider.addEventListener("pointerdown", (e) => this.divider.setPointerCapture(e.pointerId));
    this.divider.addEventListener("pointermove", (e) => {
      if (!this.divider.hasPointerCapture(e.pointerId)) return;
      this.moveDivider((e.clientX - this.section.getBoundingClientRect().left) / this.width);
    });
    new ResizeObserver(() => this.resize()).observe(section);
  }

  show(first, second, matrix) {
    this.second = second;
    this.section.querySelector(".left").textContent = `${first.name}, warped`;
    this.section.querySelector(".right").textContent = second.name;
    this.first = warp(first, second, matrix);
    this.resize();
  }

  resize() {
    const { width, height } = this.section.getBoundingClientRect();
    if (!width || !this.second) return;
    this.width = width;
    this.height = height;
    this.ratio = Math.min(2, window.devicePixelRatio || 1);
    this.canvas.width = Math.round(width * this.ratio);
    this.canvas.height = Math.round(height * this.ratio);
    this.fit();
  }

  fit() {
    const { width, height } = this.second, scale = Math.min(this.width / width, this.height / height);
    this.view = { x: width / 2, y: height / 2, scale };
    this.moveDivider(this.divided);
    this.paint();
  }

  pan(dx, dy) {
    const v = this.view;
    this.view = { ...v, x: v.x + dx / v.scale, y: v.y + dy / v.scale };
    this.draw();
  }

  zoom(factor, x = this.width / 2, y = this.height / 2) {
    const v = this.view, px = v.x + (x - this.width / 2) / v.scale, py = v.y + (y - this.height / 2) / v.scale;
    const scale = Math.min(64, Math.max(0.05, v.scale * factor)), applied = scale / v.scale;
    this.view = { x: px + (v.x - px) / applied, y: py + (v.y - py) / applied, scale };
    this.draw();
  }

  // Sets the position of the divider, as a fraction of the width.
  moveDivider(fraction) {
    this.divided = Math.min(1, Math.max(0, fraction));
    this.divider.style.left = `${100 * this.divided}%`;
    this.divider.setAttribute("aria-valuenow", Math.round(100 * this.divided));
    this.divider.setAttribute("aria-valuetext", `${Math.round(100 * this.divided)} percent first image`);
    this.draw();
  }

  draw() {
    if (this.frameRequested) return;
    this.frameRequested = true;
    requestAnimationFrame(() => { this.frameRequested = false; this.paint(); });
  }

  paint() {
    const c = this.canvas.getContext("2d", { alpha: false }), { x, y, scale } = this.view;
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    c.fillStyle = "#0c0f13";
    c.fillRect(0, 0, this.width, this.height);
    c.globalAlpha = 0.3;
    c.drawImage(this.second.glow, 0, 0, this.width, this.height);
    c.globalAlpha = 1;
    c.imageSmoothingEnabled = scale < 3;
    const { width, height, bitmap } = this.second, cut = this.divided * this.width;
    const box = [this.width / 2 - x * scale, this.height / 2 - y * scale, width * scale, height * scale];
    const part = (from, to, paint) => {
      c.save();
      c.beginPath();
      c.rect(from, 0, to - from, this.height);
      c.clip();
      paint();
      c.restore();
    };
    part(cut, this.width, () => c.drawImage(bitmap, ...box));
    part(0, cut, () => {
      c.globalAlpha = 0.25;  // the second image, faint, where the first does not cover it
      c.drawImage(bitmap, ...box);
      c.globalAlpha = 1;
      c.drawImage(this.first, ...box);
    });
  }
}
