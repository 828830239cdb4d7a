// Draws an alignment step: the outline of the square in the first image, and the square itself in
// the second, blurred by σ.

const COLOR = "#ff9d5c";

function outline(c, corners, { x, y, scale }) {
  for (const [color, width] of [["#000b", 6], [COLOR, 2.5]]) {
    c.strokeStyle = color;
    c.lineWidth = width;
    c.beginPath();
    for (const [u, v] of corners) c.lineTo(x + scale * u, y + scale * v);
    c.closePath();
    c.stroke();
  }
}

// path: {template: [left, top, side], step: {sigma, corners}}
export function paintPath(c, ratio, path, transform, image) {
  const [left, top, side] = path.template, { sigma, corners } = path.step;
  const square = [[left, top], [left + side, top], [left + side, top + side], [left, top + side]];
  const clipped = (which, paint) => {
    const at = transform(which);
    c.save();
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.beginPath();
    c.rect(at.pane.x, at.pane.y, at.pane.w, at.pane.h);
    c.clip();
    paint(at);
    c.restore();
  };
  const shrink = image.bitmap.width / image.width, part = [left, top, side, side].map((v) => v * shrink);
  clipped("a", (at) => {
    c.drawImage(image.bitmap, ...part, at.x + at.scale * left, at.y + at.scale * top, at.scale * side, at.scale * side);
    outline(c, square, at);
  });
  clipped("b", (at) => {
    const [p, q, , r] = corners;
    c.save();
    c.translate(at.x, at.y);
    c.scale(at.scale, at.scale);
    c.transform((q[0] - p[0]) / side, (q[1] - p[1]) / side, (r[0] - p[0]) / side, (r[1] - p[1]) / side, p[0], p[1]);
    c.filter = sigma > 1 ? `blur(${Math.min(40, sigma * at.scale * ratio).toFixed(1)}px)` : "none";
    c.drawImage(image.bitmap, ...part, 0, 0, side, side);
    c.restore();
    outline(c, corners, at);
  });
}
