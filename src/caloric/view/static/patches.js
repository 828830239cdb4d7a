// The patches of a match without a server: cropped from the images in the page.

const SIDE = 96;  // pixels of a patch
const REACH = 10;  // σ to each side, as the server cuts them

export function cutPatches(found, i, pictures) {
  const cut = (side) => {
    const canvas = document.createElement("canvas"), f = found[side], p = pictures[side];
    canvas.width = canvas.height = SIDE;
    const c = canvas.getContext("2d"), scale = SIDE / (2 * REACH * f.s[i]), shrink = p.image.width / p.width;
    c.filter = "grayscale(1)";
    c.translate(SIDE / 2, SIDE / 2);
    c.rotate(-f.t[i]);
    c.scale(scale / shrink, scale / shrink);
    c.drawImage(p.image, -(f.x[i] + 0.5) * shrink, -(f.y[i] + 0.5) * shrink);
    return { patch: canvas.toDataURL() };
  };
  return { a: cut("a"), b: cut("b") };
}
