// For every text that is seen: its color and what is behind it, where photographs may be anything.
// Returns the worst ratio of contrast with its text, and how many there were.
(() => {
  const parse = (color) => {
    const [r, g, b, alpha] = color.match(/[\d.]+/g).map(Number);
    return [r, g, b, alpha ?? 1];
  };
  const over = (top, low) => [...[0, 1, 2].map((k) => top[k] * top[3] + low[k] * (1 - top[3])), 1];
  const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const behind = (element, photograph) => {
    if (!element) return [255, 255, 255, 1];
    if (element.id === "shown") return photograph;
    const own = parse(getComputedStyle(element).backgroundColor);
    if (own[3] === 1) return own;
    const floating = element.matches("[popover], dialog, #error");
    return over(own, behind(floating ? null : element.parentElement, photograph));
  };
  const seen = { visibilityProperty: true, opacityProperty: true }, found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement, words = walk.currentNode.textContent.trim();
    if (!words || element.closest("script, style, .unseen") || !element.checkVisibility(seen)) continue;
    for (const photograph of [[0, 0, 0, 1], [255, 255, 255, 1]]) {
      const low = behind(element, photograph);
      found.push([ratio(over(parse(getComputedStyle(element).color), low), low), words]);
    }
  }
  found.sort((p, q) => p[0] - q[0]);
  return { worst: found[0], texts: found.length };
})()
