// Pointer events on a canvas, reported as drags, zooms, hovers and clicks.

const CLICK_DISTANCE = 5;  // pixels; a press that moves less is a click

// Callbacks: {hover(x, y), drag(x, y, dx, dy), zoom(factor, x, y), click(x, y)}, in pixels of the canvas.
export function listenForGestures(canvas, callbacks) {
  const pointers = new Map();
  let distance = 0, pinch = 0;
  const position = (e) => { const box = canvas.getBoundingClientRect(); return [e.clientX - box.left, e.clientY - box.top]; };
  canvas.addEventListener("pointerdown", (e) => {
    canvas.setPointerCapture(e.pointerId);
    pointers.set(e.pointerId, position(e));
    distance = 0;
    pinch = 0;
  });
  canvas.addEventListener("pointermove", (e) => {
    const [x, y] = position(e), before = pointers.get(e.pointerId);
    if (!before) { callbacks.hover(x, y); return; }
    pointers.set(e.pointerId, [x, y]);
    if (pointers.size === 2) {
      const [p, q] = [...pointers.values()], spacing = Math.hypot(p[0] - q[0], p[1] - q[1]);
      if (pinch) callbacks.zoom(spacing / pinch, (p[0] + q[0]) / 2, (p[1] + q[1]) / 2);
      pinch = spacing;
      distance = CLICK_DISTANCE;
      return;
    }
    distance += Math.abs(x - before[0]) + Math.abs(y - before[1]);
    callbacks.drag(...before, x - before[0], y - before[1]);
  });
  const release = (e) => {
    if (pointers.delete(e.pointerId) && e.type === "pointerup" && distance < CLICK_DISTANCE) callbacks.click(...position(e));
    pinch = 0;
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("wheel", (e) => {
    e.preventDefault();
    callbacks.zoom(Math.exp(-e.deltaY * (e.deltaMode ? 0.05 : 0.0015)), ...position(e));
  }, { passive: false });
}
