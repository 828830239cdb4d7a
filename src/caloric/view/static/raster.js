// Rasterizes points and lines into pixels. Canvas paths take ten times as long without a GPU.
//
// The more opaque of two values at a pixel is kept: points cover lines, and lines cover the dark
// edges of others, in any order.

const DARK = 0.42;  // the edge of a line, of full alpha
const EDGE = 1.3;  // pixels of its width

// Offsets of the pixels with a distance from the center in [from, to), for a row length.
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
    this.words = new Uint32Array(this.image.data.buffer);
  }

  clear() { this.words.fill(0); }

  show() { this.context.putImageData(this.image, 0, 0); }

  // Discs with a dark edge at each pair of coordinates; rgb is 0xBBGGRR.
  dots(places, radius, rgb, darkness) {
    const { words, width, height } = this, margin = Math.ceil(radius) + 2;
    const inner = ring(0, radius, width), outer = ring(radius, radius + 1.1, width);
    const color = (0xff000000 | rgb) >>> 0, shade = 255 * darkness | 0, dark = shade << 24 >>> 0;
    for (let k = 0; k < places.length; k += 2) {
      const x = Math.round(places[k]), y = Math.round(places[k + 1]);
      if (!(x >= margin && y >= margin && x < width - margin && y < height - margin)) continue;
      const middle = y * width + x;
      for (let n = 0; shade && n < outer.length; n += 1) {
        const at = middle + outer[n];
        if (shade > words[at] >>> 24) words[at] = dark;
      }
      for (let n = 0; n < inner.length; n += 1) words[middle + inner[n]] = color;
    }
  }

  // An antialiased line with a dark edge, from (x, y) to (u, v), along its longer axis.
  line(x, y, u, v, half, rgb, alpha) {
    const steep = Math.abs(v - y) > Math.abs(u - x), { words } = this;
    let [s, t, e, f] = steep ? [y, x, v, u] : [x, y, u, v];
    if (s > e) [s, t, e, f] = [e, f, s, t];
    const slope = e > s ? (f - t) / (e - s) : 0, across = Math.sqrt(1 + slope * slope);
    const along = steep ? this.width : 1, aside = steep ? 1 : this.width, most = (steep ? this.width : this.height) - 1;
    const last = Math.min((steep ? this.height : this.width) - 1, Math.round(e)), reach = (half + EDGE + 0.5) * across;
    const full = 255 * alpha;
    for (let i = Math.max(0, Math.round(s)); i <= last; i += 1) {
      const middle = t + slope * (i - s), end = Math.min(most, Math.floor(middle + reach));
      for (let j = Math.max(0, Math.ceil(middle - reach)); j <= end; j += 1) {
        const far = Math.abs(j - middle) / across - half, at = i * along + j * aside;
        const seen = far <= -0.5 ? full : far < 0.5 ? full * (0.5 - far) : 0;
        const edge = far - EDGE < -0.5 ? DARK * full : DARK * full * (0.5 - far + EDGE);
        const own = seen > edge ? seen | 0 : edge | 0;
        if (own > words[at] >>> 24) words[at] = (own << 24 | (seen > edge ? rgb : 0)) >>> 0;
      }
    }
  }
}
