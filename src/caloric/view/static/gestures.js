// Pointer events on a canvas, reported as drags, zooms, hovers and clicks.

const STILL = 5;  // pixels: what moved less is a click

// Callbacks: {hover(x, y), drag(x, y, dx, dy), zoom(by, x, y), click(x, y)}, in pixels of the canvas.
export function gestures(canvas, told) {
  const pointers = new Map();
  let moved = 0, pinch = 0;
  const at = (e) => { const box = canvas.getBoundingClientRect(); return [e.clientX - box.left, e.clientY - box.top]; };
  canvas.addEventListener("pointerdown", (e) => {
    canvas.setPointerCapture(e.pointerId);
    pointers.set(e.pointerId, at(e));
    moved = 0;
    pinch = 0;
  });
  canvas.addEventListener("pointermove", (e) => {
    const [x, y] = at(e), before = pointers.get(e.pointerId);
    if (!before) { told.hover(x, y); return; }
    pointers.set(e.pointerId, [x, y]);
    if (pointers.size === 2) {
      const [p, q] = [...pointers.values()], apart = Math.hypot(p[0] - q[0], p[1] - q[1]);
      if (pinch) told.zoom(apart / pinch, (p[0] + q[0]) / 2, (p[1] + q[1]) / 2);
      pinch = apart;
      moved = STILL;
      return;
    }
    moved += Math.abs(x - before[0]) + Math.abs(y - before[1]);
    told.drag(...before, x - before[0], y - before[1]);
  });
  const up = (e) => {
    if (pointers.delete(e.pointerId) && e.type === "pointerup" && moved < STILL) told.click(...at(e));
    pinch = 0;
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("wheel", (e) => {
    e.preventDefault();
    told.zoom(Math.exp(-e.deltaY * (e.deltaMode ? 0.05 : 0.0015)), ...at(e));
  }, { passive: false });
}
