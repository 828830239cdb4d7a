// The layer of matches: points at both ends of every match, and lines for some of them.
import { Raster } from "./raster.js";

export const COLORS = ["#35d6ff", "#7fe8b8", "#cdea6c", "#ffdf5c"];  // inliers, by residual
export const OUTLIER = "#ff6a3d";
const CHOSEN = "#ffffff";
const CROWD = 3000;  // matches with more of which points are small
const FRAME = 4;  // milliseconds that lines may take while the pictures move

// 0xBBGGRR, as pixels are stored.
const stored = (color) => {
  const value = parseInt(color.slice(1), 16);
  return (value & 255) << 16 | (value & 0xff00) | value >> 16;
};

// Matches grouped by style: [{color, list}], smallest residuals first.
export function grouped(found, inliers, outliers) {
  const groups = COLORS.map((color) => ({ color, list: [] })), others = { color: OUTLIER, list: [] };
  const step = found.threshold / COLORS.length;
  for (let i = 0; i < found.inlier.length; i += 1) {
    if (!found.inlier[i]) { if (outliers) others.list.push(i); } else if (inliers) {
      groups[Math.min(COLORS.length - 1, Math.floor(found.residual[i] / step))].list.push(i);
    }
  }
  return [...groups, others];
}

export class MatchLayer {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
  }

  resize(width, height, ratio) {
    this.canvas.width = Math.max(1, Math.round(width * ratio));
    this.canvas.height = Math.max(1, Math.round(height * ratio));
    this.ratio = ratio;
    this.weight = Math.min(2.2, Math.max(0.8, width / 1000));  // thicker lines on a wide screen
    this.raster = null;
    this.budget = 400;  // lines while the pictures move: as many as there is time for
  }

  clear() {
    this.context.setTransform(1, 0, 0, 1, 0, 0);
    this.context.clearRect(0, 0, this.canvas.width, this.canvas.height);
  }

  // place(side) returns {x, y, scale, pane}: the map from image to screen.
  paint(found, groups, place, most, moving) {
    const start = performance.now(), ends = groups.map(({ list }) => this.project(found, list, place));
    this.raster ??= new Raster(this.context);
    this.raster.clear();
    this.paintLines(groups, ends, moving ? Math.min(this.budget, most) : most);
    this.paintPoints(groups, ends, moving);
    this.raster.show();
    const spare = FRAME / Math.max(1, performance.now() - start);
    if (moving) this.budget = Math.min(4000, Math.max(60, this.budget * Math.min(1.2, Math.max(0.5, spare))));
  }

  // Four numbers per match, in pixels of the canvas; NaN if it is outside.
  project(found, list, place) {
    const ends = new Float32Array(4 * list.length);
    for (const [k, side] of [[0, "a"], [2, "b"]]) {
      const { x, y, scale, pane } = place(side), xs = found[side].x, ys = found[side].y;
      const right = pane.x + pane.w, bottom = pane.y + pane.h;
      for (let n = 0; n < list.length; n += 1) {
        const u = x + scale * xs[list[n]], v = y + scale * ys[list[n]];
        const seen = u >= pane.x && u <= right && v >= pane.y && v <= bottom;
        ends[4 * n + k] = seen ? u * this.ratio : NaN;
        ends[4 * n + k + 1] = v * this.ratio;
      }
    }
    return ends;
  }

  paintPoints(groups, ends, moving) {
    const many = groups.reduce((sum, { list }) => sum + list.length, 0) > CROWD;
    const size = Math.max(1, Math.round((many ? 1.1 : 1.8) * this.weight * this.ratio));
    const radius = size + (size > 1 ? 0.3 : 0.5);  // which is round in whole pixels
    for (let g = groups.length - 1; g >= 0; g -= 1) {  // the best on top
      this.raster.dots(ends[g], radius, stored(groups[g].color), many ? (moving ? 0 : 0.35) : 0.95);
    }
  }

  // The matches with both ends visible, evenly subsampled to a maximum.
  paintLines(groups, ends, most) {
    const both = ends.map((list) => {
      const seen = [];
      for (let k = 0; k < list.length; k += 4) if (!Number.isNaN(list[k]) && !Number.isNaN(list[k + 2])) seen.push(k);
      return seen;
    });
    const total = both.reduce((sum, seen) => sum + seen.length, 0), share = Math.min(1, most / Math.max(1, total));
    const alpha = Math.min(0.95, Math.max(0.5, 1.2 - 0.08 * Math.log(share * total + 1))), half = 0.5 * this.weight * this.ratio;
    groups.forEach(({ color }, g) => {
      const list = ends[g], rgb = stored(color);
      both[g].forEach((k, n) => {
        if (Math.floor((n + 1) * share) > Math.floor(n * share)) {
          this.raster.line(list[k], list[k + 1], list[k + 2], list[k + 3], half, rgb, alpha);
        }
      });
    });
  }

  // The selected match: its line, and a circle of 3 σ with its direction at each end.
  paintChosen(found, i, place) {
    const c = this.context, group = [i], list = this.project(found, group, place);
    for (const [color, width] of [["#000a", 5], [CHOSEN, 2]]) {
      c.setTransform(1, 0, 0, 1, 0, 0);
      c.strokeStyle = color;
      c.lineWidth = width * Math.max(0.8, this.weight / 1.25) * this.ratio;
      c.beginPath();
      if (!Number.isNaN(list[0]) && !Number.isNaN(list[2])) { c.moveTo(list[0], list[1]); c.lineTo(list[2], list[3]); }
      c.stroke();
      for (const [k, side] of [[0, "a"], [2, "b"]]) {
        if (Number.isNaN(list[k])) continue;
        const { scale, pane } = place(side), t = found[side].t[i];
        const radius = Math.max(6, 3 * found[side].s[i] * scale) * this.ratio;
        c.save();
        c.beginPath();
        c.rect(pane.x * this.ratio, pane.y * this.ratio, pane.w * this.ratio, pane.h * this.ratio);
        c.clip();
        c.beginPath();
        c.arc(list[k], list[k + 1], radius, 0, 7);
        c.moveTo(list[k], list[k + 1]);
        c.lineTo(list[k] + radius * Math.cos(t), list[k + 1] + radius * Math.sin(t));
        c.stroke();
        c.restore();
      }
    }
  }
}
