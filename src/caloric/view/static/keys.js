// Keyboard shortcuts; the help dialog lists the same table.

// [keys, label, description, name of the action, its arguments]
const KEYS = [
  [["n"], "n", "Next match", "step", 1],
  [["p"], "p", "Previous match", "step", -1],
  [["ArrowLeft"], "← → ↑ ↓", "Pan, or move the divider of before / after", "pan", -60, 0],
  [["ArrowRight"], "", "", "pan", 60, 0],
  [["ArrowUp"], "", "", "pan", 0, -60],
  [["ArrowDown"], "", "", "pan", 0, 60],
  [["+", "="], "+ −", "Zoom in and out", "zoom", 1.25],
  [["-"], "", "", "zoom", 0.8],
  [["0"], "0", "Fit both images", "fit"],
  [["m"], "m", "Matches", "mode", "matches"],
  [["b"], "b", "Before / after", "mode", "swipe"],
  [["s"], "s", "Compare SIFT and Caloric", "mode", "compare"],
  [["g"], "g", "Animate the alignment at the selected match", "align"],
  [["r"], "r", "Response maps at the selected match", "respond"],
  [["i"], "i", "Show or hide inliers", "press", "inliers"],
  [["a"], "a", "Show or hide propagated inliers", "press", "propagated"],
  [["o"], "o", "Show or hide outliers", "press", "outliers"],
  [["d"], "d", "Open or close details", "press", "details"],
  [["t"], "t", "Switch the theme (system, dark, light)", "press", "theme"],
  [["Escape"], "Esc", "Cancel what is running, or close", "close"],
  [["?"], "?", "Show this help", "help"],
];

// Whether the focused control handles a key: lists and number fields take all keys, sliders the arrows.
function isHandledByControl(target, key) {
  if (target.matches?.("select, input[type=number]")) return key !== "Escape" && key !== "?";
  return Boolean(target.matches?.("input[type=range]")) && key.startsWith("Arrow");
}

export function listenForKeys(actions) {
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented) return;
    if (document.querySelector("dialog[open]") || isHandledByControl(e.target, e.key)) return;
    const key = e.key.length === 1 ? e.key.toLowerCase() : e.key, row = KEYS.find(([names]) => names.includes(key));
    if (!row) return;
    const [, , , action, ...values] = row;
    if (actions[action](...values) !== false) e.preventDefault();
  });
}

// [label, description] of each shortcut.
export function keyHelp() {
  return KEYS.filter(([, label]) => label).map(([, label, description]) => [label, description]);
}
