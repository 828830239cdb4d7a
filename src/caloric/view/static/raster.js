// Rasterizes points and lines into pixels. Canvas paths take ten times as long without a GPU.
//
// The more opaque of two values at a pixel is kept: points cover lines, and lines cover the dark
// edges of others, in any order.

const EDGE_ALPHA = 0.42;  // of the dark edge of a line, relative to the line
const EDGE = 1.3;  // width of the dark edge in pixels

// Offsets of the pixels at a distance in [from, to) from the center, in an image of some width.
function ring(from, to, width) {
  const offsets = [], reach = Math.ceil(to);
  for (let y = -reach; y <= reach; y += 1) for (let x = -reach; x <= reach; x += 1) {
    const distance = Math.hypot(x, y);
    if (distance >= from && distance < to) offsets.push(y * width + x);
  }
  return Int32Array.from(offsets);
}

export class Raster {
  constructor(context) {
    const { width, height } = context.canvas;
    this.context = context;
    this.width = width;
    this.height = height;
    this.image = context.createImageData(width, height);
    this.pixels = new Uint32Array(this.image.data.buffer);
  }

  clear() { this.pixels.fill(0); }

  show() { this.context.putImageData(this.image, 0, 0); }

  // Discs with a dark edge at each pair of coordinates; rgb is 0xBBGGRR.
  dots(positions, radius, rgb, darkness) {
    const { pixels, width, height } = this, margin = Math.ceil(radius) + 2;
    const inner = ring(0, radius, width), outer = ring(radius, radius + 1.1, width);
    const color = (0xff000000 | rgb) >>> 0, shade = 255 * darkness | 0, dark = shade << 24 >>> 0;
    for (let k = 0; k < positions.length; k += 2) {
      const x = Math.round(positions[k]), y = Math.round(positions[k + 1]);
      if (!(x >= margin && y >= margin && x < width - margin && y < height - margin)) continue;
      const middle = y * width + x;
      for (let n = 0; shade && n < outer.length; n += 1) {
        const at = middle + outer[n];
        if (shade > pixels[at] >>> 24) pixels[at] = dark;
      }
      for (let n = 0; n < inner.length; n += 1) pixels[middle + inner[n]] = color;
    }
  }

  // An antialiased line with a dark edge, from (x, y) to (u, v), along its longer axis.
  line(x, y, u, v, half, rgb, alpha) {
    const steep = Math.abs(v - y) > Math.abs(u - x), { pixels } = this;
    let [s, t, e, f] = steep ? [y, x, v, u] : [x, y, u, v];
    if (s > e) [s, t, e, f] = [e, f, s, t];
    const slope = e > s ? (f - t) / (e - s) : 0, stretch = Math.sqrt(1 + slope * slope);
    const along = steep ? this.width : 1, across = steep ? 1 : this.width, limit = (steep ? this.width : this.height) - 1;
    const last = Math.min((steep ? this.height : this.width) - 1, Math.round(e)), reach = (half + EDGE + 0.5) * stretch;
    const full = 255 * alpha;
    for (let i = Math.max(0, Math.round(s)); i <= last; i += 1) {
      const middle = t + slope * (i - s), end = Math.min(limit, Math.floor(middle + reach));
      for (let j = Math.max(0, Math.ceil(middle - reach)); j <= end; j += 1) {
        const distance = Math.abs(j - middle) / stretch - half, at = i * along + j * across;
        const inner = distance <= -0.5 ? full : distance < 0.5 ? full * (0.5 - distance) : 0;
        const edge = distance - EDGE < -0.5 ? EDGE_ALPHA * full : EDGE_ALPHA * full * (0.5 - distance + EDGE);
        const value = inner > edge ? inner | 0 : edge | 0;
        if (value > pixels[at] >>> 24) pixels[at] = (value << 24 | (inner > edge ? rgb : 0)) >>> 0;
      }
    }
  }
}
