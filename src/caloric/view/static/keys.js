// Keys work everywhere on the page; the list under "?" is made of the same table.

// [keys, how they are listed, what they do, name of the action, its arguments]
const KEYS = [
  [["n"], "n", "The next match", "step", 1],
  [["p"], "p", "The match before", "step", -1],
  [["ArrowLeft"], "← → ↑ ↓", "Move; before / after: swipe", "pan", -60, 0],
  [["ArrowRight"], "", "", "pan", 60, 0],
  [["ArrowUp"], "", "", "pan", 0, -60],
  [["ArrowDown"], "", "", "pan", 0, 60],
  [["+", "="], "+ −", "Zoom in and out", "zoom", 1.25],
  [["-"], "", "", "zoom", 0.8],
  [["0"], "0", "Both pictures whole", "fit"],
  [["m"], "m", "Matches", "mode", "matches"],
  [["b"], "b", "Before / after, with a swipe", "mode", "swipe"],
  [["s"], "s", "SIFT beside Caloric", "mode", "beside"],
  [["g"], "g", "Align at the chosen match, and play it", "align"],
  [["r"], "r", "Response maps of the chosen match", "respond"],
  [["i"], "i", "Inliers: show or hide", "press", "inliers"],
  [["o"], "o", "Outliers: show or hide", "press", "outliers"],
  [["d"], "d", "Details: open or close", "press", "details"],
  [["t"], "t", "Theme: system, dark, light", "press", "theme"],
  [["Escape"], "Esc", "Close what is open", "close"],
  [["?"], "?", "These keys", "help"],
];

// Whether a control needs a key itself: all of them to type, arrows to slide.
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
