// Layout of two images: side by side or stacked, whichever shows them larger.

const GAP = 4;
const MIN_SHARE = 0.25;  // of the box, for each image

const aspect = (image) => (image ? image.width / image.height : 4 / 3);

// The areas that both images cover, side by side and stacked.
function layoutAreas(width, height, a, b) {
  const across = aspect(a) + aspect(b), down = 1 / aspect(a) + 1 / aspect(b);
  const rowHeight = Math.min(height, (width - GAP) / across);
  const columnWidth = Math.min(width, (height - GAP) / down);
  return { row: rowHeight * rowHeight * across, column: columnWidth * columnWidth * down };
}

// The area that both images cover in the better layout.
export function coveredArea(width, height, a, b) {
  const { row, column } = layoutAreas(width, height, a, b);
  return Math.max(row, column);
}

export function arrange(width, height, a, b) {
  const { row, column } = layoutAreas(width, height, a, b), stacked = column > row;
  const first = stacked ? aspect(b) : aspect(a), second = stacked ? aspect(a) : aspect(b);
  const share = Math.min(1 - MIN_SHARE, Math.max(MIN_SHARE, first / (first + second)));
  const end = Math.max(1, (stacked ? height : width) - GAP), cut = Math.round(share * end);
  if (stacked) {
    return { stacked, a: { x: 0, y: 0, w: width, h: cut }, b: { x: 0, y: cut + GAP, w: width, h: end - cut } };
  }
  return { stacked, a: { x: 0, y: 0, w: cut, h: height }, b: { x: cut + GAP, y: 0, w: end - cut, h: height } };
}

// The view that fits a whole image into its pane, adjacent to the gap so that lines are short.
export function fitView(panes, side, image) {
  const pane = panes[side], scale = Math.min(pane.w / image.width, pane.h / image.height);
  const shift = (side === "a" ? 0.5 : -0.5) / scale;
  const across = panes.stacked ? 0 : (pane.w - image.width * scale) * shift;
  const down = panes.stacked ? (pane.h - image.height * scale) * shift : 0;
  return { x: (image.width - 1) / 2 - across, y: (image.height - 1) / 2 - down, scale };
}
