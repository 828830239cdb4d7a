// The layer of matches: points at both ends of every match, and lines for some of them.
import { Raster } from "./raster.js";

export const COLORS = ["#35d6ff", "#7fe8b8", "#cdea6c", "#ffdf5c"];  // inliers, by residual
export const OUTLIER = "#ff6a3d";
const SELECTED = "#ffffff";
const CROWDED = 3000;  // number of matches above which points are small
const TIME_BUDGET = 4;  // milliseconds per frame for lines while the images move

// A CSS color as 0xBBGGRR, the byte order of canvas pixels.
const toPixel = (color) => {
  const value = parseInt(color.slice(1), 16);
  return (value & 255) << 16 | (value & 0xff00) | value >> 16;
};

// Matches grouped by color: [{color, list}], smallest residuals first.
export function groupMatches(result, { inliers, propagated, outliers }) {
  const groups = COLORS.map((color) => ({ color, list: [] })), outlierGroup = { color: OUTLIER, list: [] };
  const step = result.threshold / COLORS.length;
  for (let i = 0; i < result.inlier.length; i += 1) {
    if (!result.inlier[i]) { if (outliers) outlierGroup.list.push(i); } else if (result.propagated[i] ? propagated : inliers) {
      groups[Math.min(COLORS.length - 1, Math.floor(result.residual[i] / step))].list.push(i);
    }
  }
  return [...groups, outlierGroup];
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
    this.budget = 400;  // lines while the images move; adapted to the time they take
  }

  clear() {
    this.context.setTransform(1, 0, 0, 1, 0, 0);
    this.context.clearRect(0, 0, this.canvas.width, this.canvas.height);
  }

  // transform(side) returns {x, y, scale, pane}, the map from image to screen.
  paint(result, groups, transform, maxLines, moving) {
    const start = performance.now(), ends = groups.map(({ list }) => this.project(result, list, transform));
    this.raster ??= new Raster(this.context);
    this.raster.clear();
    this.paintLines(groups, ends, moving ? Math.min(this.budget, maxLines) : maxLines);
    this.paintPoints(groups, ends, moving);
    this.raster.show();
    const spare = TIME_BUDGET / Math.max(1, performance.now() - start);
    if (moving) this.budget = Math.min(4000, Math.max(60, this.budget * Math.min(1.2, Math.max(0.5, spare))));
  }

  // Four coordinates per match, in pixels of the canvas; x is NaN for an end outside its pane.
  project(result, list, transform) {
    const ends = new Float32Array(4 * list.length);
    for (const [k, side] of [[0, "a"], [2, "b"]]) {
      const { x, y, scale, pane } = transform(side), xs = result[side].x, ys = result[side].y;
      const right = pane.x + pane.w, bottom = pane.y + pane.h;
      for (let n = 0; n < list.length; n += 1) {
        const u = x + scale * xs[list[n]], v = y + scale * ys[list[n]];
        const inside = u >= pane.x && u <= right && v >= pane.y && v <= bottom;
        ends[4 * n + k] = inside ? u * this.ratio : NaN;
        ends[4 * n + k + 1] = v * this.ratio;
      }
    }
    return ends;
  }

  paintPoints(groups, ends, moving) {
    const crowded = groups.reduce((sum, { list }) => sum + list.length, 0) > CROWDED;
    const size = Math.max(1, Math.round((crowded ? 1.1 : 1.8) * this.weight * this.ratio));
    const radius = size + (size > 1 ? 0.3 : 0.5);  // looks round without antialiasing
    for (let g = groups.length - 1; g >= 0; g -= 1) {  // smallest residuals on top
      this.raster.dots(ends[g], radius, toPixel(groups[g].color), crowded ? (moving ? 0 : 0.35) : 0.95);
    }
  }

  // The matches with both ends visible, evenly subsampled to a maximum.
  paintLines(groups, ends, maxLines) {
    const visible = ends.map((list) => {
      const offsets = [];
      for (let k = 0; k < list.length; k += 4) if (!Number.isNaN(list[k]) && !Number.isNaN(list[k + 2])) offsets.push(k);
      return offsets;
    });
    const total = visible.reduce((sum, offsets) => sum + offsets.length, 0), share = Math.min(1, maxLines / Math.max(1, total));
    const alpha = Math.min(0.95, Math.max(0.5, 1.2 - 0.08 * Math.log(share * total + 1))), half = 0.5 * this.weight * this.ratio;
    groups.forEach(({ color }, g) => {
      const list = ends[g], rgb = toPixel(color);
      visible[g].forEach((k, n) => {
        if (Math.floor((n + 1) * share) > Math.floor(n * share)) {
          this.raster.line(list[k], list[k + 1], list[k + 2], list[k + 3], half, rgb, alpha);
        }
      });
    });
  }

  // The selected match: its line, and a circle of 3 σ with its direction at each end.
  paintSelected(result, i, transform) {
    const c = this.context, list = this.project(result, [i], transform);
    for (const [color, width] of [["#000a", 5], [SELECTED, 2]]) {
      c.setTransform(1, 0, 0, 1, 0, 0);
      c.strokeStyle = color;
      c.lineWidth = width * Math.max(0.8, this.weight / 1.25) * this.ratio;
      c.beginPath();
      if (!Number.isNaN(list[0]) && !Number.isNaN(list[2])) { c.moveTo(list[0], list[1]); c.lineTo(list[2], list[3]); }
      c.stroke();
      for (const [k, side] of [[0, "a"], [2, "b"]]) {
        if (Number.isNaN(list[k])) continue;
        const { scale, pane } = transform(side), t = result[side].t[i];
        const radius = Math.max(6, 3 * result[side].s[i] * scale) * this.ratio;
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
