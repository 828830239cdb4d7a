// Maps a view of one image to the other, by a similarity fitted to the nearest matches.

const NEAREST = 12;

// The center of the other view and the scale of the similarity, for a view centered at (x, y); null
// with fewer than two inliers.
export function linkedView(from, to, inliers, x, y) {
  if (inliers.length < 2) return null;
  const near = [];
  for (const i of inliers) {
    const d = (from.x[i] - x) ** 2 + (from.y[i] - y) ** 2;
    if (near.length < NEAREST) { near.push([d, i]); near.sort((p, q) => p[0] - q[0]); }
    else if (d < near[NEAREST - 1][0]) { near[NEAREST - 1] = [d, i]; near.sort((p, q) => p[0] - q[0]); }
  }
  const spread = near[near.length - 1][0] + 1;
  let w = 0, ax = 0, ay = 0, bx = 0, by = 0;
  for (const [d, i] of near) {
    const u = Math.exp(-2 * d / spread);
    w += u; ax += u * from.x[i]; ay += u * from.y[i]; bx += u * to.x[i]; by += u * to.y[i];
  }
  ax /= w; ay /= w; bx /= w; by /= w;
  let dot = 0, cross = 0, square = 0;
  for (const [d, i] of near) {
    const u = Math.exp(-2 * d / spread);
    const px = from.x[i] - ax, py = from.y[i] - ay, qx = to.x[i] - bx, qy = to.y[i] - by;
    dot += u * (px * qx + py * qy); cross += u * (px * qy - py * qx); square += u * (px * px + py * py);
  }
  const c = square > 0 ? dot / square : 1, s = square > 0 ? cross / square : 0;
  const scale = Math.min(8, Math.max(1 / 8, Math.hypot(c, s) || 1));
  return { x: bx + c * (x - ax) - s * (y - ay), y: by + s * (x - ax) + c * (y - ay), scale };
}
