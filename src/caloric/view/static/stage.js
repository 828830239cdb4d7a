// Two images, their matches, and navigation. Images and matches are separate canvases, so that the
// images can be dimmed and need not be redrawn when only the matches change.
import { gestures } from "./gestures.js";
import { arrange, whole } from "./layout.js";
import { MatchLayer, grouped } from "./lines.js";
import { linked } from "./linking.js";
import { paintPath } from "./overlay.js";

const sides = ["a", "b"];
const PIXELS = 8e6;  // of a canvas: more take longer to draw than they are seen
const REST = 140;  // milliseconds without a movement after which all lines are drawn
const DIM = 0.7, DIMMER = 0.5, GLOW = 0.3;  // light of the pictures behind lines and alignments, and around them
const NEAR = 12;  // pixels within which a match is pointed at

export class Stage {
  constructor(section, told) {
    this.section = section;
    this.told = told;  // {hover(i), click(side, x, y, i), view(), arranged()}
    this.canvas = section.querySelector(".matches");
    this.background = section.querySelector(".pictures");
    this.layer = new MatchLayer(this.canvas);
    this.pictures = {};
    this.width = 0;  // until it is measured
    this.panes = arrange(1, 1);
    this.views = { a: { x: 0, y: 0, scale: 1 }, b: { x: 0, y: 0, scale: 1 } };
    this.found = null;
    this.shown = { inliers: true, outliers: false, most: 0 };
    this.groups = [];
    this.visible = [];  // all that are in a group
    this.kept = [];  // the inliers, by which the pictures move together
    this.chosen = -1;
    this.path = null;  // what is drawn of an alignment; the lines are hidden meanwhile
    this.link = true;
    this.dim = true;
    this.moved = false;
    this.waiting = false;
    this.resting = 0;
    this.listen();
    new ResizeObserver(() => this.resize()).observe(section);  // which also measures it first
  }

  resize() {
    const { width, height } = this.section.getBoundingClientRect();
    if (!width || !height) return;  // hidden
    this.width = width;
    this.height = height;
    this.ratio = Math.min(2, window.devicePixelRatio || 1, Math.sqrt(PIXELS / (width * height)));
    this.background.width = Math.round(width * this.ratio);
    this.background.height = Math.round(height * this.ratio);
    this.layer.resize(width, height, this.ratio);
    this.panes = arrange(width, height, this.pictures.a, this.pictures.b);
    this.told.arranged?.();
    if (!this.moved) this.center();
    this.paint();  // at once: a canvas is empty after its size has changed
  }

  fit() {
    if (!this.width) return;
    this.center();
    this.draw();
    this.told.view();
  }

  center() {
    for (const side of sides) {
      if (this.pictures[side]) this.views[side] = whole(this.panes, side, this.pictures[side]);
    }
    this.moved = false;
  }

  show(side, picture) {
    this.pictures[side] = { ...picture, glow: glow(picture.image) };
    this.moved = false;
    this.resize();
  }

  // Sets the result, or null, and which matches are shown.
  set(found, shown) {
    if (found !== this.found) this.chosen = -1;
    this.found = found;
    this.shown = shown;
    this.groups = found ? grouped(found, shown.inliers, shown.outliers) : [];
    this.visible = this.groups.flatMap((group) => group.list);
    this.kept = found ? found.inlier.flatMap((inlier, i) => (inlier ? [i] : [])) : [];
    this.draw();
  }

  // A point p of an image is drawn at x + scale * p.
  place(side) {
    const v = this.views[side], pane = this.panes[side];
    return { x: pane.x + pane.w / 2 - v.x * v.scale, y: pane.y + pane.h / 2 - v.y * v.scale, scale: v.scale, pane };
  }

  toPicture(side, x, y) {
    const p = this.place(side);
    return [(x - p.x) / p.scale, (y - p.y) / p.scale];
  }

  sideAt(x, y) {
    const { b, stacked } = this.panes;
    return (stacked ? y < b.y : x < b.x) ? "a" : "b";
  }

  // Sets the view of one side; the other follows the matches there.
  move(side, view) {
    const p = this.pictures[side];
    if (!p) return;
    const fit = whole(this.panes, side, p).scale;
    const within = (value, size) => Math.min(1.5 * size, Math.max(-0.5 * size, value));
    this.views[side] = {
      x: within(view.x, p.width), y: within(view.y, p.height), scale: Math.min(64, Math.max(0.2 * fit, view.scale)),
    };
    if (this.link && this.kept.length > 1) {
      const other = side === "a" ? "b" : "a", v = this.views[side];
      const to = linked(this.found[side], this.found[other], this.kept, v.x, v.y);
      if (to) this.views[other] = { x: to.x, y: to.y, scale: v.scale / to.scale };
    }
    this.follow(this.views);
    this.told.view();
  }

  // Copies the views of another stage; draws fewer lines until they are still.
  follow(views, moved = true) {
    this.views = { a: { ...views.a }, b: { ...views.b } };
    this.moved = moved;
    clearTimeout(this.resting);
    this.resting = setTimeout(() => { this.resting = 0; this.draw(); }, REST);
    this.draw();
  }

  zoom(side, by, x, y) {
    if (!this.width) return;
    const v = this.views[side], [px, py] = this.toPicture(side, x, y);
    this.move(side, { x: px + (v.x - px) / by, y: py + (v.y - py) / by, scale: v.scale * by });
  }

  // For keys and buttons: moves the first image by a number of screen pixels.
  pan(dx, dy) {
    const v = this.views.a;
    this.move("a", { ...v, x: v.x + dx / v.scale, y: v.y + dy / v.scale });
  }

  zoomMiddle(by) {
    const pane = this.panes.a;
    this.zoom("a", by, pane.x + pane.w / 2, pane.y + pane.h / 2);
  }

  draw() {
    if (this.waiting || !this.width) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.paint(); });
  }

  paint() {
    this.paintPictures();
    this.paintMatches();
  }

  paintPictures() {
    const c = this.background.getContext("2d", { alpha: false });
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    c.fillStyle = "#0c0f13";
    c.fillRect(0, 0, this.width, this.height);
    for (const side of sides) {
      const p = this.pictures[side], pane = this.panes[side];
      if (!p?.image) continue;
      c.save();
      c.beginPath();
      c.rect(pane.x, pane.y, pane.w, pane.h);
      c.clip();
      const light = this.path ? DIMMER : this.dim && this.visible.length ? DIM : 1;
      c.globalAlpha = GLOW * light;
      c.drawImage(p.glow, pane.x, pane.y, pane.w, pane.h);
      c.globalAlpha = light;
      this.paintParts(c, side, p);
      c.restore();
    }
  }

  paintParts(c, side, p) {
    const { x, y, scale } = this.place(side);
    c.imageSmoothingEnabled = scale < 3;
    const at = (image, left, top, w, h) => c.drawImage(image, x + (left - 0.5) * scale, y + (top - 0.5) * scale, w * scale, h * scale);
    at(p.image, 0, 0, p.width, p.height);
    if (p.part) at(p.part.image, p.part.x, p.part.y, p.part.w, p.part.h);
  }

  paintMatches() {
    const place = (side) => this.place(side);
    if (this.path) {
      this.layer.clear();
      paintPath(this.layer.context, this.ratio, this.path, place, this.pictures.a);
    } else if (this.found) {
      this.layer.paint(this.found, this.groups, place, this.shown.most, Boolean(this.resting));
      if (this.chosen >= 0) this.layer.paintChosen(this.found, this.chosen, place);
    } else this.layer.clear();
  }

  // The match closest to a position on the screen; -1 if there is none.
  near(x, y) {
    const side = this.sideAt(x, y);
    if (!this.found || this.path) return -1;
    const p = this.place(side), xs = this.found[side].x, ys = this.found[side].y;
    let best = NEAR * NEAR, which = -1;
    for (const { list } of this.groups) for (const i of list) {
      const d = (p.x + p.scale * xs[i] - x) ** 2 + (p.y + p.scale * ys[i] - y) ** 2;
      if (d < best) { best = d; which = i; }
    }
    return which;
  }

  select(i) {
    this.chosen = i;
    this.draw();
    this.told.hover(i);
  }

  // The visible match that is a number of steps after the selected one.
  step(by) {
    const list = this.visible;
    if (!list.length) return;
    const at = list.indexOf(this.chosen), next = at < 0 ? Math.min(0, by) : at + by;
    const i = list[(next + list.length) % list.length];
    const p = this.place("a"), x = p.x + p.scale * this.found.a.x[i], y = p.y + p.scale * this.found.a.y[i];
    const inside = x > p.pane.x + 20 && x < p.pane.x + p.pane.w - 20 && y > p.pane.y + 20 && y < p.pane.y + p.pane.h - 20;
    if (!inside) this.move("a", { ...this.views.a, x: this.found.a.x[i], y: this.found.a.y[i] });
    this.select(i);
  }

  listen() {
    gestures(this.canvas, {
      hover: (x, y) => { const i = this.near(x, y); if (i >= 0 && i !== this.chosen) this.select(i); },
      drag: (x, y, dx, dy) => {
        const side = this.sideAt(x, y), v = this.views[side];
        this.move(side, { ...v, x: v.x - dx / v.scale, y: v.y - dy / v.scale });
      },
      zoom: (by, x, y) => this.zoom(this.sideAt(x, y), by, x, y),
      click: (x, y) => {
        const side = this.sideAt(x, y), i = this.near(x, y);
        if (i >= 0) this.select(i);
        const p = this.pictures[side], [u, v] = this.toPicture(side, x, y);
        if (p && u >= 0 && v >= 0 && u < p.width && v < p.height) this.told.click(side, u, v, i);
      },
    });
  }
}

// The background around an image: the image itself, blurred.
function glow(image) {
  let from = image;
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
