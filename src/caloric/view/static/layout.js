// Layout of two images: side by side or stacked, whichever shows them larger.

const GAP = 4;
const least = 0.25;  // share of the box that each has, however odd its shape

const aspect = (picture) => (picture ? picture.width / picture.height : 4 / 3);

function sizes(width, height, a, b) {
  const across = aspect(a) + aspect(b), down = 1 / aspect(a) + 1 / aspect(b);
  const tall = Math.min(height, (width - GAP) / across);  // their height, beside each other
  const wide = Math.min(width, (height - GAP) / down);  // their width, above each other
  return { beside: tall * tall * across, above: wide * wide * down };
}

// The area of a box that the images cover.
export function filled(width, height, a, b) {
  const { beside, above } = sizes(width, height, a, b);
  return Math.max(beside, above);
}

export function arrange(width, height, a, b) {
  const { beside, above } = sizes(width, height, a, b), stacked = above > beside;
  const first = stacked ? aspect(b) : aspect(a), second = stacked ? aspect(a) : aspect(b);
  const share = Math.min(1 - least, Math.max(least, first / (first + second)));
  const end = Math.max(1, (stacked ? height : width) - GAP), cut = Math.round(share * end);
  if (stacked) {
    return { stacked, a: { x: 0, y: 0, w: width, h: cut }, b: { x: 0, y: cut + GAP, w: width, h: end - cut } };
  }
  return { stacked, a: { x: 0, y: 0, w: cut, h: height }, b: { x: cut + GAP, y: 0, w: end - cut, h: height } };
}

// The view that shows a whole image, adjacent to the gap so that lines are short.
export function whole(panes, side, picture) {
  const pane = panes[side], scale = Math.min(pane.w / picture.width, pane.h / picture.height);
  const towards = (side === "a" ? 0.5 : -0.5) / scale;
  const across = panes.stacked ? 0 : (pane.w - picture.width * scale) * towards;
  const down = panes.stacked ? (pane.h - picture.height * scale) * towards : 0;
  return { x: (picture.width - 1) / 2 - across, y: (picture.height - 1) / 2 - down, scale };
}
