// Saves the view as an image file, and copies the command.
import { COLORS, OUTLIER } from "./lines.js";
import { pixels, summary } from "./text.js";

const BAND = 44;  // pixels of the caption

export function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// Paints one stage with its caption and legend.
function paintStage(c, stage, result, outliers) {
  const { width, height } = stage.canvas, r = stage.ratio;
  c.fillStyle = "#0c0f13";
  c.fillRect(0, 0, width, height + BAND * r);
  c.drawImage(stage.background, 0, 0);
  c.drawImage(stage.canvas, 0, 0);
  if (!result) return;
  c.font = `${14 * r}px system-ui, sans-serif`;
  c.textBaseline = "middle";
  c.fillStyle = "#f2f4f7";
  const middle = height + BAND * r / 2, [headline, ...rest] = summary(result);
  const labels = [`0 to ${pixels(result.threshold)} px`, ...(outliers ? ["outliers"] : [])];
  const legendWidth = 14 * r + labels.reduce((sum, text) => sum + c.measureText(text).width + 70 * r, 0);
  c.fillText(`${headline} ${rest.join(" · ")}`, 14 * r, middle, Math.max(60, width - legendWidth - 28 * r));
  let x = width - legendWidth;
  labels.forEach((text, k) => {
    const colors = k ? [OUTLIER] : COLORS;
    colors.forEach((color, n) => {
      c.fillStyle = color;
      c.fillRect(x + n * 44 * r / colors.length, middle - 2 * r, 44 * r / colors.length, 4 * r);
    });
    c.fillStyle = "#f2f4f7";
    c.fillText(text, x + 52 * r, middle);
    x += 70 * r + c.measureText(text).width;
  });
}

// A PNG of all panels {stage, result}, laid out as on the screen.
export async function snapshot(panels, { column, outliers }) {
  const parts = panels.map(({ stage }) => ({ w: stage.canvas.width, h: stage.canvas.height + Math.round(BAND * stage.ratio) }));
  const sum = (name) => parts.reduce((total, part) => total + part[name], 0);
  const largest = (name) => Math.max(...parts.map((part) => part[name]));
  const canvas = document.createElement("canvas");
  canvas.width = column ? largest("w") : sum("w");
  canvas.height = column ? sum("h") : largest("h");
  const c = canvas.getContext("2d");
  panels.forEach(({ stage, result }, k) => {
    c.save();
    c.translate(column ? 0 : k * parts[0].w, column ? k * parts[0].h : 0);
    paintStage(c, stage, result, outliers);
    c.restore();
  });
  return encode(canvas);
}

export function encode(canvas) {
  return new Promise((done, failed) => {
    canvas.toBlob((blob) => (blob ? done(blob) : failed(new Error("The image could not be encoded."))), "image/png");
  });
}

// Copies the text of a node; if the browser refuses, the text stays selected and false is returned.
export async function copyText(node) {
  try { await navigator.clipboard.writeText(node.textContent); return true; } catch {
    getSelection().selectAllChildren(node);
    return document.execCommand("copy");
  }
}
