// Keyboard shortcuts; the help dialog lists the same table.

// [keys, label, description, name of the action, its arguments]
const KEYS = [
  [["n"], "n", "Next match", "step", 1],
  [["p"], "p", "Previous match", "step", -1],
  [["ArrowLeft"], "← → ↑ ↓", "Move; before / after: swipe", "pan", -60, 0],
  [["ArrowRight"], "", "", "pan", 60, 0],
  [["ArrowUp"], "", "", "pan", 0, -60],
  [["ArrowDown"], "", "", "pan", 0, 60],
  [["+", "="], "+ −", "Zoom in and out", "zoom", 1.25],
  [["-"], "", "", "zoom", 0.8],
  [["0"], "0", "Show both images in full", "fit"],
  [["m"], "m", "Matches", "mode", "matches"],
  [["b"], "b", "Before / after", "mode", "swipe"],
  [["s"], "s", "Compare SIFT and Caloric", "mode", "beside"],
  [["g"], "g", "Animate the alignment at the selected match", "align"],
  [["r"], "r", "Response maps at the selected match", "respond"],
  [["i"], "i", "Show or hide inliers", "press", "inliers"],
  [["o"], "o", "Show or hide outliers", "press", "outliers"],
  [["d"], "d", "Open or close details", "press", "details"],
  [["t"], "t", "Theme: system, dark, light", "press", "theme"],
  [["Escape"], "Esc", "Close", "close"],
  [["?"], "?", "List the keys", "help"],
];

// Whether a focused control handles a key: text fields all keys, sliders the arrows.
function owned(target, key) {
  if (target.matches?.("select, input[type=number]")) return key !== "Escape" && key !== "?";
  return Boolean(target.matches?.("input[type=range]")) && key.startsWith("Arrow");
}

export function keys(actions) {
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented) return;
    if (document.querySelector("dialog[open]") || owned(e.target, e.key)) return;
    const key = e.key.length === 1 ? e.key.toLowerCase() : e.key, row = KEYS.find(([names]) => names.includes(key));
    if (!row) return;
    const [, , , action, ...values] = row;
    if (actions[action](...values) !== false) e.preventDefault();
  });
}

export function listed() {
  return KEYS.filter(([, shown]) => shown).map(([, shown, words]) => [shown, words]);
}
