// The contrast ratio of every visible text with its background; behind images, both black and white
// are assumed. Returns the lowest ratio with its text, and the number of measurements.
(() => {
  const parse = (color) => {
    const [r, g, b, alpha] = color.match(/[\d.]+/g).map(Number);
    return [r, g, b, alpha ?? 1];
  };
  const blend = (top, low) => [...[0, 1, 2].map((k) => top[k] * top[3] + low[k] * (1 - top[3])), 1];
  const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const ratio = (a, b) => (Math.max(luminance(a), luminance(b)) + 0.05) / (Math.min(luminance(a), luminance(b)) + 0.05);
  const behind = (element, photograph) => {
    if (!element) return [255, 255, 255, 1];
    if (element.id === "stages") return photograph;
    const color = parse(getComputedStyle(element).backgroundColor);
    if (color[3] === 1) return color;
    const floating = element.matches("[popover], dialog, #error");
    return blend(color, behind(floating ? null : element.parentElement, photograph));
  };
  const options = { visibilityProperty: true, opacityProperty: true }, measured = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement, content = walk.currentNode.textContent.trim();
    if (!content || element.closest("script, style, .visually-hidden") || !element.checkVisibility(options)) continue;
    for (const photograph of [[0, 0, 0, 1], [255, 255, 255, 1]]) {
      const low = behind(element, photograph);
      measured.push([ratio(blend(parse(getComputedStyle(element).color), low), low), content]);
    }
  }
  measured.sort((p, q) => p[0] - q[0]);
  return { worst: measured[0], texts: measured.length };
})()
