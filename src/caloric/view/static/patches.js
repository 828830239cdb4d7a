// The patches of a match in a self-contained page, cropped from its images.

const SIDE = 96;  // pixels of a patch
const REACH = 10;  // half-width in σ, as on the server

export function cropPatches(result, i, images) {
  const crop = (side) => {
    const canvas = document.createElement("canvas"), f = result[side], p = images[side];
    canvas.width = canvas.height = SIDE;
    const c = canvas.getContext("2d"), scale = SIDE / (2 * REACH * f.s[i]), shrink = p.bitmap.width / p.width;
    c.filter = "grayscale(1)";
    c.translate(SIDE / 2, SIDE / 2);
    c.rotate(-f.t[i]);
    c.scale(scale / shrink, scale / shrink);
    c.drawImage(p.bitmap, -(f.x[i] + 0.5) * shrink, -(f.y[i] + 0.5) * shrink);
    return { patch: canvas.toDataURL() };
  };
  return { a: crop("a"), b: crop("b") };
}
