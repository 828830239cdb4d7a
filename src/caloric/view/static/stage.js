// The canvas: both pictures, the matches between them, and how they are moved.
import { linked } from "./linking.js";

const COLOURS = ["#28c76f", "#9ccf3f", "#f0c828", "#eb8a1e"];  // by residual, up to the threshold
const OTHER = "#ff5a4d";
const MOST_LINES = 300;  // more hide the pictures; every match has its points
const sides = ["a", "b"];

export class Stage {
  constructor(canvas, told) {
    this.canvas = canvas;
    this.told = told;  // {hover, click, view}
    this.pictures = {};
    this.views = { a: { x: 0, y: 0, scale: 1 }, b: { x: 0, y: 0, scale: 1 } };
    this.found = null;
    this.kept = [];
    this.others = [];
    this.chosen = -1;
    this.outline = null;
    this.link = true;
    this.waiting = false;
    this.listen();
    new ResizeObserver(() => { this.measure(); this.moved ? this.draw() : this.fit(); }).observe(canvas);
    this.measure();
  }

  measure() {
    const box = this.canvas.getBoundingClientRect();
    this.ratio = Math.min(2, window.devicePixelRatio || 1);
    this.width = box.width;
    this.height = box.height;
    this.canvas.width = Math.round(box.width * this.ratio);
    this.canvas.height = Math.round(box.height * this.ratio);
    const stacked = box.width < 700;
    const w = stacked ? box.width : box.width / 2, h = stacked ? box.height / 2 : box.height;
    this.panes = { a: { x: 0, y: 0, w, h }, b: { x: stacked ? 0 : w, y: stacked ? h : 0, w, h } };
  }

  fit() {
    for (const side of sides) {
      const p = this.pictures[side], pane = this.panes[side];
      if (!p) continue;
      const scale = Math.min(pane.w / p.width, pane.h / p.height) * 0.98;
      this.views[side] = { x: (p.width - 1) / 2, y: (p.height - 1) / 2, scale };
    }
    this.moved = false;
    this.draw();
    this.told.view();
  }

  show(side, picture) { this.pictures[side] = picture; this.fit(); }

  choose(found, kept, others) {
    this.found = found; this.kept = kept; this.others = others;
    this.draw();
  }

  toScreen(side, x, y) {
    const v = this.views[side], pane = this.panes[side];
    return [pane.x + pane.w / 2 + (x - v.x) * v.scale, pane.y + pane.h / 2 + (y - v.y) * v.scale];
  }

  toPicture(side, x, y) {
    const v = this.views[side], pane = this.panes[side];
    return [v.x + (x - pane.x - pane.w / 2) / v.scale, v.y + (y - pane.y - pane.h / 2) / v.scale];
  }

  sideAt(x, y) {
    return sides.find((s) => { const p = this.panes[s]; return x >= p.x && x < p.x + p.w && y >= p.y && y < p.y + p.h; });
  }

  // Another view of one side; the other follows through the matches there.
  move(side, view) {
    const p = this.pictures[side];
    if (!p) return;
    this.moved = true;
    const pane = this.panes[side];
    const least = 0.2 * Math.min(pane.w / p.width, pane.h / p.height);
    this.views[side] = {
      x: Math.min(p.width, Math.max(0, view.x)), y: Math.min(p.height, Math.max(0, view.y)),
      scale: Math.min(64, Math.max(least, view.scale)),
    };
    if (this.link && this.found && this.kept.length > 1) {
      const other = side === "a" ? "b" : "a", v = this.views[side];
      const to = linked(this.found[side], this.found[other], this.kept, v.x, v.y);
      if (to) this.views[other] = { x: to.x, y: to.y, scale: v.scale / to.scale };
    }
    this.draw();
    this.told.view();
  }

  zoom(side, by, x, y) {
    const v = this.views[side], [px, py] = this.toPicture(side, x, y);
    const scale = v.scale * by;
    this.move(side, { x: px + (v.x - px) / by, y: py + (v.y - py) / by, scale });
  }

  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.paint(); });
  }

  paint() {
    const c = this.canvas.getContext("2d", { alpha: false });
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    c.fillStyle = "#14181d";
    c.fillRect(0, 0, this.width, this.height);
    for (const side of sides) this.paintPicture(c, side);
    const a = this.panes.a, stacked = this.panes.b.y > 0;
    c.fillStyle = "#39424d";
    c.fillRect(stacked ? 0 : a.w - 0.5, stacked ? a.h - 0.5 : 0, stacked ? a.w : 1, stacked ? 1 : a.h);
    if (this.found) this.paintMatches(c);
    if (this.outline) this.paintOutline(c);
  }

  paintPicture(c, side) {
    const p = this.pictures[side];
    if (!p || !p.image) return;
    this.within(c, side, () => this.paintParts(c, side, p));
  }

  paintParts(c, side, p) {
    const scale = this.views[side].scale;
    const at = (image, x, y, w, h) => {
      const [left, top] = this.toScreen(side, x - 0.5, y - 0.5);
      c.imageSmoothingEnabled = scale < 3;
      c.drawImage(image, left, top, w * scale, h * scale);
    };
    at(p.image, 0, 0, p.width, p.height);
    if (p.part) at(p.part.image, p.part.x, p.part.y, p.part.w, p.part.h);
  }

  visible(side, i) {
    const s = this.toScreen(side, this.found[side].x[i], this.found[side].y[i]), p = this.panes[side];
    return s[0] >= p.x && s[0] <= p.x + p.w && s[1] >= p.y && s[1] <= p.y + p.h ? s : null;
  }

  paintMatches(c) {
    const groups = COLOURS.map(() => []);
    const step = this.found.threshold / COLOURS.length;
    let lines = 0;
    for (const i of this.kept) {
      const p = this.visible("a", i), q = this.visible("b", i);
      if (!p && !q) continue;
      const k = Math.min(COLOURS.length - 1, Math.floor(this.found.residual[i] / step));
      groups[k].push([p, q]);
      if (p && q) lines += 1;
    }
    const others = [];
    for (const i of this.others) {
      const p = this.visible("a", i), q = this.visible("b", i);
      if (p || q) others.push([p, q]);
      if (p && q) lines += 1;
    }
    const every = Math.max(1, Math.ceil(lines * Math.max(1, 1000 / this.width) / MOST_LINES));
    this.paintGroup(c, others, OTHER, every, 0.35);
    groups.forEach((group, k) => this.paintGroup(c, group, COLOURS[k], every, 0.6));
    if (this.chosen >= 0) this.paintChosen(c, this.chosen);
  }

  paintGroup(c, group, colour, every, strength) {
    if (!group.length) return;
    c.strokeStyle = colour; c.fillStyle = colour; c.lineWidth = 1;
    c.globalAlpha = strength;
    c.beginPath();
    let k = 0;
    for (const [p, q] of group) if (p && q && k++ % every === 0) { c.moveTo(p[0], p[1]); c.lineTo(q[0], q[1]); }
    c.stroke();
    c.globalAlpha = 1;
    for (const [p, q] of group) {
      if (p) c.fillRect(p[0] - 1.5, p[1] - 1.5, 3, 3);
      if (q) c.fillRect(q[0] - 1.5, q[1] - 1.5, 3, 3);
    }
  }

  paintChosen(c, i) {
    const ends = sides.map((side) => this.toScreen(side, this.found[side].x[i], this.found[side].y[i]));
    c.strokeStyle = "#fff"; c.lineWidth = 2;
    if (this.visible("a", i) && this.visible("b", i)) {
      c.beginPath(); c.moveTo(...ends[0]); c.lineTo(...ends[1]); c.stroke();
    }
    sides.forEach((side, k) => this.within(c, side, () => {
      const r = Math.max(5, 3 * this.found[side].s[i] * this.views[side].scale), t = this.found[side].t[i];
      c.beginPath(); c.arc(ends[k][0], ends[k][1], r, 0, 7);
      c.moveTo(...ends[k]); c.lineTo(ends[k][0] + r * Math.cos(t), ends[k][1] + r * Math.sin(t));
      c.stroke();
    }));
  }

  // Drawn in one pane alone.
  within(c, side, paint) {
    const pane = this.panes[side];
    c.save();
    c.beginPath(); c.rect(pane.x, pane.y, pane.w, pane.h); c.clip();
    paint();
    c.restore();
  }

  paintOutline(c) {
    for (const [side, corners, colour] of this.outline) this.within(c, side, () => {
      c.strokeStyle = colour; c.lineWidth = 2;
      c.beginPath();
      corners.forEach(([x, y], k) => { const s = this.toScreen(side, x, y); k ? c.lineTo(...s) : c.moveTo(...s); });
      c.closePath(); c.stroke();
    });
  }

  // The match nearest to a place on the screen, within so many pixels; -1 if there is none.
  near(x, y, within = 12) {
    const side = this.sideAt(x, y);
    if (!side || !this.found) return -1;
    let best = within * within, which = -1;
    for (const list of [this.kept, this.others]) for (const i of list) {
      const s = this.toScreen(side, this.found[side].x[i], this.found[side].y[i]);
      const d = (s[0] - x) ** 2 + (s[1] - y) ** 2;
      if (d < best) { best = d; which = i; }
    }
    return which;
  }

  select(i) { this.chosen = i; this.draw(); this.told.hover(i); }

  // Go to a match, so that both of its ends are seen.
  goTo(i) {
    const v = this.views.a;
    const [x, y] = this.toScreen("a", this.found.a.x[i], this.found.a.y[i]), p = this.panes.a;
    if (x < p.x + 20 || x > p.x + p.w - 20 || y < p.y + 20 || y > p.y + p.h - 20) {
      this.move("a", { x: this.found.a.x[i], y: this.found.a.y[i], scale: v.scale });
    }
    this.select(i);
  }

  listen() {
    const canvas = this.canvas, pointers = new Map();
    let moved = 0, pinch = 0;
    const at = (e) => { const box = canvas.getBoundingClientRect(); return [e.clientX - box.left, e.clientY - box.top]; };
    canvas.addEventListener("pointerdown", (e) => {
      canvas.setPointerCapture(e.pointerId);
      pointers.set(e.pointerId, at(e)); moved = 0; pinch = 0;
    });
    canvas.addEventListener("pointermove", (e) => {
      const [x, y] = at(e), before = pointers.get(e.pointerId);
      if (!before) { const i = this.near(x, y); if (i >= 0 && i !== this.chosen) this.select(i); return; }
      pointers.set(e.pointerId, [x, y]);
      const side = this.sideAt(...before);
      if (!side) return;
      if (pointers.size === 2) {
        const [p, q] = [...pointers.values()];
        const apart = Math.hypot(p[0] - q[0], p[1] - q[1]);
        if (pinch) this.zoom(side, apart / pinch, (p[0] + q[0]) / 2, (p[1] + q[1]) / 2);
        pinch = apart; moved = 99;
        return;
      }
      moved += Math.abs(x - before[0]) + Math.abs(y - before[1]);
      const v = this.views[side];
      this.move(side, { x: v.x - (x - before[0]) / v.scale, y: v.y - (y - before[1]) / v.scale, scale: v.scale });
    });
    const up = (e) => {
      if (pointers.delete(e.pointerId) && e.type === "pointerup" && moved < 5) {
        const [x, y] = at(e), side = this.sideAt(x, y), i = this.near(x, y);
        if (i >= 0) this.select(i);
        if (side && this.pictures[side]) this.told.click(side, ...this.toPicture(side, x, y), i);
      }
      pinch = 0;
    };
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", up);
    canvas.addEventListener("wheel", (e) => {
      e.preventDefault();
      const [x, y] = at(e), side = this.sideAt(x, y);
      if (side) this.zoom(side, Math.exp(-e.deltaY * (e.deltaMode ? 0.05 : 0.0015)), x, y);
    }, { passive: false });
  }
}
