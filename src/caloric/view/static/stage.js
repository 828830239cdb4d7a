// Two images, their matches, and navigation. Images and matches are separate canvases, so that the
// images can be dimmed and need not be redrawn when only the matches change.
import { listenForGestures } from "./gestures.js";
import { arrange, fitView } from "./layout.js";
import { MatchLayer, groupMatches } from "./lines.js";
import { linkedView } from "./linking.js";
import { paintPath } from "./overlay.js";

const sides = ["a", "b"];
const MAX_PIXELS = 8e6;  // of a canvas; larger ones are too slow to draw
const SETTLE_TIME = 140;  // milliseconds without movement after which all lines are drawn
const BEHIND_LINES = 0.7, BEHIND_ALIGNMENT = 0.5, SURROUNDINGS = 0.3;  // opacity of the images, and of the blurred background
const HOVER_RADIUS = 12;  // pixels

export class Stage {
  constructor(section, callbacks) {
    this.section = section;
    this.callbacks = callbacks;  // {hover(i), click(side, x, y, i), view(), layout()}
    this.canvas = section.querySelector(".matches");
    this.background = section.querySelector(".images");
    this.layer = new MatchLayer(this.canvas);
    this.images = {};
    this.width = 0;  // not measured yet
    this.panes = arrange(1, 1);
    this.views = { a: { x: 0, y: 0, scale: 1 }, b: { x: 0, y: 0, scale: 1 } };
    this.result = null;
    this.filter = { inliers: true, propagated: true, outliers: false, maxLines: 0 };
    this.groups = [];
    this.visible = [];  // indices of the matches in all groups
    this.inliers = [];  // indices of the inliers, which link the views
    this.selected = -1;
    this.path = null;  // the alignment step that is shown instead of the matches
    this.link = true;
    this.dim = true;
    this.moved = false;  // by the user; otherwise the images are fitted on resize
    this.frameRequested = false;
    this.settleTimer = 0;  // nonzero while the images move
    this.listen();
    new ResizeObserver(() => this.resize()).observe(section);  // also called once at the start
  }

  resize() {
    const { width, height } = this.section.getBoundingClientRect();
    if (!width || !height) return;  // hidden
    this.width = width;
    this.height = height;
    this.ratio = Math.min(2, window.devicePixelRatio || 1, Math.sqrt(MAX_PIXELS / (width * height)));
    this.background.width = Math.round(width * this.ratio);
    this.background.height = Math.round(height * this.ratio);
    this.layer.resize(width, height, this.ratio);
    this.panes = arrange(width, height, this.images.a, this.images.b);
    this.callbacks.layout?.();
    if (!this.moved) this.center();
    this.paint();  // immediately: resizing clears a canvas
  }

  fit() {
    if (!this.width) return;
    this.center();
    this.draw();
    this.callbacks.view();
  }

  center() {
    for (const side of sides) {
      if (this.images[side]) this.views[side] = fitView(this.panes, side, this.images[side]);
    }
    this.moved = false;
  }

  setImage(side, image) {
    this.images[side] = { ...image, glow: blurredCopy(image.bitmap) };
    this.moved = false;
    this.resize();
  }

  // Sets the result, or null, and the filter of its matches.
  set(result, filter) {
    if (result !== this.result) this.selected = -1;
    this.result = result;
    this.filter = filter;
    this.groups = result ? groupMatches(result, filter) : [];
    this.visible = this.groups.flatMap((group) => group.list);
    this.inliers = result ? result.inlier.flatMap((inlier, i) => (inlier ? [i] : [])) : [];
    this.draw();
  }

  // A point p of an image is drawn at x + scale * p.
  transform(side) {
    const v = this.views[side], pane = this.panes[side];
    return { x: pane.x + pane.w / 2 - v.x * v.scale, y: pane.y + pane.h / 2 - v.y * v.scale, scale: v.scale, pane };
  }

  toImage(side, x, y) {
    const p = this.transform(side);
    return [(x - p.x) / p.scale, (y - p.y) / p.scale];
  }

  sideAt(x, y) {
    const { b, stacked } = this.panes;
    return (stacked ? y < b.y : x < b.x) ? "a" : "b";
  }

  // Sets the view of one side; if the views are linked, the other follows by the nearest matches.
  move(side, view) {
    const p = this.images[side];
    if (!p) return;
    const fit = fitView(this.panes, side, p).scale;
    const clamp = (value, size) => Math.min(1.5 * size, Math.max(-0.5 * size, value));
    this.views[side] = {
      x: clamp(view.x, p.width), y: clamp(view.y, p.height), scale: Math.min(64, Math.max(0.2 * fit, view.scale)),
    };
    if (this.link && this.inliers.length > 1) {
      const other = side === "a" ? "b" : "a", v = this.views[side];
      const to = linkedView(this.result[side], this.result[other], this.inliers, v.x, v.y);
      if (to) this.views[other] = { x: to.x, y: to.y, scale: v.scale / to.scale };
    }
    this.follow(this.views);
    this.callbacks.view();
  }

  // Sets both views; fewer lines are drawn until they settle.
  follow(views, moved = true) {
    this.views = { a: { ...views.a }, b: { ...views.b } };
    this.moved = moved;
    clearTimeout(this.settleTimer);
    this.settleTimer = setTimeout(() => { this.settleTimer = 0; this.draw(); }, SETTLE_TIME);
    this.draw();
  }

  zoom(side, factor, x, y) {
    if (!this.width) return;
    const v = this.views[side], [px, py] = this.toImage(side, x, y);
    this.move(side, { x: px + (v.x - px) / factor, y: py + (v.y - py) / factor, scale: v.scale * factor });
  }

  // Pans the first image by screen pixels (for keys).
  pan(dx, dy) {
    const v = this.views.a;
    this.move("a", { ...v, x: v.x + dx / v.scale, y: v.y + dy / v.scale });
  }

  zoomCenter(factor) {
    const pane = this.panes.a;
    this.zoom("a", factor, pane.x + pane.w / 2, pane.y + pane.h / 2);
  }

  draw() {
    if (this.frameRequested || !this.width) return;
    this.frameRequested = true;
    requestAnimationFrame(() => { this.frameRequested = false; this.paint(); });
  }

  paint() {
    this.paintImages();
    this.paintMatches();
  }

  paintImages() {
    const c = this.background.getContext("2d", { alpha: false });
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    c.fillStyle = "#0c0f13";
    c.fillRect(0, 0, this.width, this.height);
    for (const side of sides) {
      const p = this.images[side], pane = this.panes[side];
      if (!p?.bitmap) continue;
      c.save();
      c.beginPath();
      c.rect(pane.x, pane.y, pane.w, pane.h);
      c.clip();
      const opacity = this.path ? BEHIND_ALIGNMENT : this.dim && this.visible.length ? BEHIND_LINES : 1;
      c.globalAlpha = SURROUNDINGS * opacity;
      c.drawImage(p.glow, pane.x, pane.y, pane.w, pane.h);
      c.globalAlpha = opacity;
      this.paintImage(c, side, p);
      c.restore();
    }
  }

  paintImage(c, side, p) {
    const { x, y, scale } = this.transform(side);
    c.imageSmoothingEnabled = scale < 3;
    const drawAt = (bitmap, left, top, w, h) => c.drawImage(bitmap, x + (left - 0.5) * scale, y + (top - 0.5) * scale, w * scale, h * scale);
    drawAt(p.bitmap, 0, 0, p.width, p.height);
    if (p.crop) drawAt(p.crop.bitmap, p.crop.x, p.crop.y, p.crop.w, p.crop.h);
  }

  paintMatches() {
    const transform = (side) => this.transform(side);
    if (this.path) {
      this.layer.clear();
      paintPath(this.layer.context, this.ratio, this.path, transform, this.images.a);
    } else if (this.result) {
      this.layer.paint(this.result, this.groups, transform, this.filter.maxLines, Boolean(this.settleTimer));
      if (this.selected >= 0) this.layer.paintSelected(this.result, this.selected, transform);
    } else this.layer.clear();
  }

  // The match closest to a screen position; -1 if there is none within reach.
  matchAt(x, y) {
    const side = this.sideAt(x, y);
    if (!this.result || this.path) return -1;
    const p = this.transform(side), xs = this.result[side].x, ys = this.result[side].y;
    let best = HOVER_RADIUS ** 2, closest = -1;
    for (const { list } of this.groups) for (const i of list) {
      const d = (p.x + p.scale * xs[i] - x) ** 2 + (p.y + p.scale * ys[i] - y) ** 2;
      if (d < best) { best = d; closest = i; }
    }
    return closest;
  }

  select(i) {
    this.selected = i;
    this.draw();
    this.callbacks.hover(i);
  }

  // Selects the visible match a number of steps after the selected one.
  step(count) {
    const list = this.visible;
    if (!list.length) return;
    const at = list.indexOf(this.selected), next = at < 0 ? Math.min(0, count) : at + count;
    const i = list[(next + list.length) % list.length];
    const p = this.transform("a"), x = p.x + p.scale * this.result.a.x[i], y = p.y + p.scale * this.result.a.y[i];
    const inside = x > p.pane.x + 20 && x < p.pane.x + p.pane.w - 20 && y > p.pane.y + 20 && y < p.pane.y + p.pane.h - 20;
    if (!inside) this.move("a", { ...this.views.a, x: this.result.a.x[i], y: this.result.a.y[i] });
    this.select(i);
  }

  listen() {
    listenForGestures(this.canvas, {
      hover: (x, y) => { const i = this.matchAt(x, y); if (i >= 0 && i !== this.selected) this.select(i); },
      drag: (x, y, dx, dy) => {
        const side = this.sideAt(x, y), v = this.views[side];
        this.move(side, { ...v, x: v.x - dx / v.scale, y: v.y - dy / v.scale });
      },
      zoom: (factor, x, y) => this.zoom(this.sideAt(x, y), factor, x, y),
      click: (x, y) => {
        const side = this.sideAt(x, y), i = this.matchAt(x, y);
        if (i >= 0) this.select(i);
        const p = this.images[side], [u, v] = this.toImage(side, x, y);
        if (p && u >= 0 && v >= 0 && u < p.width && v < p.height) this.callbacks.click(side, u, v, i);
      },
    });
  }
}

// A blurred copy of an image, drawn around it as background.
function blurredCopy(bitmap) {
  let from = bitmap;
  for (const [w, h] of [[24, 16], [96, 64]]) {
    const canvas = document.createElement("canvas");
    canvas.width = w;
    canvas.height = h;
    const c = canvas.getContext("2d");
    c.imageSmoothingQuality = "high";
    c.drawImage(from, 0, 0, w, h);
    from = canvas;
  }
  return from;
}
