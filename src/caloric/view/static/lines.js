// The layer of matches: a point at each end of every match, and lines between some of them.
//
// Points are written into the pixels of an image: 20,000 of them take 2 ms, as rectangles 20. Lines
// are few batched paths; 10,000 take 70 ms, so fewer are drawn while the pictures move.

export const COLOURS = ["#35d6ff", "#7fe8b8", "#cdea6c", "#ffdf5c"];  // inliers, by residual
export const OUTLIER = "#ff6a3d";
const CHOSEN = "#ffffff";
const EDGE = 0xd0000000;  // behind points and lines, so that they are seen on any picture
const MOVING = 700;  // lines while the pictures move
const CHUNK = 100;  // lines of a path: a path of all takes longer
const HALOS = 800;  // lines that have an edge

const word = (colour) => {
  const value = parseInt(colour.slice(1), 16);
  return (0xff000000 | (value & 255) << 16 | (value & 0xff00) | value >> 16) >>> 0;
};

// Half the width of each row of a disc.
function disc(radius) {
  const rows = [];
  for (let y = -radius; y <= radius; y += 1) rows.push(Math.round(Math.sqrt((radius + 0.4) ** 2 - y * y) - 0.2));
  return rows;
}

// Matches by how they are drawn: [{colour, list}], best residuals first.
export function grouped(found, inliers, outliers) {
  const groups = COLOURS.map((colour) => ({ colour, list: [] })), others = { colour: OUTLIER, list: [] };
  const step = found.threshold / COLOURS.length;
  for (let i = 0; i < found.inlier.length; i += 1) {
    if (!found.inlier[i]) { if (outliers) others.list.push(i); } else if (inliers) {
      groups[Math.min(COLOURS.length - 1, Math.floor(found.residual[i] / step))].list.push(i);
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
    this.weight = Math.min(2.2, Math.max(1.25, width / 1100));  // thicker lines on a wide screen
    this.image = null;
  }

  clear() {
    this.context.setTransform(1, 0, 0, 1, 0, 0);
    this.context.clearRect(0, 0, this.canvas.width, this.canvas.height);
  }

  // place(side) gives {x, y, scale, pane} with which a point of a picture is seen on the screen.
  paint(found, groups, place, most, moving) {
    const ends = groups.map(({ list }) => this.project(found, list, place));
    this.clear();
    this.paintPoints(groups, ends);
    this.paintLines(groups, ends, moving ? Math.min(MOVING, most) : most);
  }

  // Four numbers for each match, in pixels of the canvas; NaN where it is not seen.
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

  paintPoints(groups, ends) {
    const { width, height } = this.canvas;
    if (!this.image) {
      this.image = this.context.createImageData(width, height);
      this.words = new Uint32Array(this.image.data.buffer);
    }
    this.words.fill(0);
    const radius = Math.round(1.2 * this.weight * this.ratio);
    const inner = disc(radius), outer = disc(radius + 1);
    for (let g = groups.length - 1; g >= 0; g -= 1) {  // the best on top
      const colour = word(groups[g].colour), list = ends[g];
      for (let k = 0; k < list.length; k += 2) {
        if (Number.isNaN(list[k])) continue;
        const x = Math.round(list[k]), y = Math.round(list[k + 1]);
        this.stamp(outer, x, y, radius + 1, EDGE);
        this.stamp(inner, x, y, radius, colour);
      }
    }
    this.context.putImageData(this.image, 0, 0);
  }

  stamp(rows, x, y, radius, colour) {
    const { width, height } = this.canvas, words = this.words;
    for (let dy = -radius; dy <= radius; dy += 1) {
      if (y + dy < 0 || y + dy >= height) continue;
      const half = rows[dy + radius], start = (y + dy) * width;
      const last = Math.min(width - 1, x + half);
      for (let u = Math.max(0, x - half); u <= last; u += 1) words[start + u] = colour;
    }
  }

  paintLines(groups, ends, most) {
    const both = ends.map((list) => {
      const seen = [];
      for (let k = 0; k < list.length; k += 4) if (!Number.isNaN(list[k]) && !Number.isNaN(list[k + 2])) seen.push(k);
      return seen;
    });
    const total = both.reduce((sum, seen) => sum + seen.length, 0), every = Math.max(1, total / Math.max(1, most));
    if (!most) return;
    const drawn = both.map((seen) => seen.filter((_, n) => Math.floor(n / every) !== Math.floor((n - 1) / every)));
    const count = drawn.reduce((sum, seen) => sum + seen.length, 0), c = this.context;
    c.globalCompositeOperation = "destination-over";  // beneath the points; later ones deeper
    c.globalAlpha = Math.min(0.95, Math.max(0.4, 1.15 - 0.1 * Math.log(count + 1)));
    c.lineWidth = this.weight * this.ratio;
    groups.forEach(({ colour }, g) => { c.strokeStyle = colour; this.stroke(ends[g], drawn[g]); });
    if (count <= HALOS) {
      c.globalAlpha = 0.45;
      c.strokeStyle = "#000";
      c.lineWidth = (this.weight + 1.6) * this.ratio;
      groups.forEach((_, g) => this.stroke(ends[g], drawn[g]));
    }
    c.globalCompositeOperation = "source-over";
    c.globalAlpha = 1;
  }

  stroke(list, seen) {
    const c = this.context;
    for (let start = 0; start < seen.length; start += CHUNK) {
      c.beginPath();
      for (const k of seen.slice(start, start + CHUNK)) { c.moveTo(list[k], list[k + 1]); c.lineTo(list[k + 2], list[k + 3]); }
      c.stroke();
    }
  }

  // The chosen match: its line, and a circle of 3 σ with its direction at each end.
  paintChosen(found, i, place) {
    const c = this.context, group = [i], list = this.project(found, group, place);
    for (const [colour, width] of [["#000a", 5], [CHOSEN, 2]]) {
      c.setTransform(1, 0, 0, 1, 0, 0);
      c.strokeStyle = colour;
      c.lineWidth = width * this.weight * this.ratio / 1.25;
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
