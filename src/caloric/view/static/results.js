// Requests and shows results. After a change of settings the old result is grayed out until the new
// one arrives, and removed if that fails.
import { $, element, showError, showProgress } from "./page.js";
import { countInliers, displayName, number, summary } from "./text.js";

// A stage and the result that it shows.
export class ResultPanel {
  constructor(stage, source) {
    this.stage = stage;
    this.source = source;
    this.result = null;
    this.settings = null;
    this.error = "";  // why there is no result
    this.pending = null;  // AbortController of the current request
  }

  get stale() { return this.pending !== null; }

  // Resolves to true when the result for these settings has arrived.
  async request(settings, filter) {
    this.pending?.abort();
    const controller = new AbortController();
    this.pending = controller;
    this.settings = settings;
    this.stage.section.classList.add("stale");
    this.stage.section.setAttribute("aria-busy", "true");
    try {
      const result = await this.source.matches(settings, controller.signal);
      if (this.pending !== controller) return false;
      this.result = result;
    } catch (error) {
      if (this.pending !== controller) return false;
      this.result = null;  // the old result is for other settings
      this.error = error.message;
      showError(new Error(`Matching failed: ${error.message}`));
    }
    this.pending = null;
    this.stage.section.classList.remove("stale");
    this.stage.section.removeAttribute("aria-busy");
    this.show(filter);
    return this.result !== null;
  }

  reset() {
    this.pending?.abort();
    this.pending = null;
    this.result = null;
    this.settings = null;
    this.stage.section.classList.remove("stale");
    this.stage.set(null, this.stage.filter);
  }

  show(filter) {
    this.stage.set(this.result, filter);
    this.stage.canvas.setAttribute("aria-label", this.result
      ? `Two images and their matches: ${summary(this.result).join(", ")}` : "Two images without matches");
  }
}

function missingImages({ a, b }) {
  return a || b ? `Drop the ${a ? "second" : "first"} image or choose a file` : "Drop two images or choose files";
}

// Updates the status line and the legend.
export function showCounts(panel) {
  const { result, settings } = panel, counts = $("counts");
  counts.classList.toggle("stale", panel.stale);
  counts.classList.toggle("unreliable", Boolean(result) && !result.reliable && !panel.stale);
  if (panel.stale) {
    counts.textContent = `Matching with ${displayName(settings.descriptor)}…`;
    showProgress(counts.textContent, "");  // the status line is announced anyway
    return;
  }
  showProgress("");
  counts.replaceChildren();
  if (result) {
    const [headline, ...rest] = summary(result);
    counts.append(element("b", { textContent: headline }), ...rest.flatMap((text) => [" ", element("span", { textContent: text })]));
  } else counts.textContent = settings ? `Matching failed: ${panel.error}` : missingImages(panel.stage.images);
  const inliers = result ? countInliers(result) : 0;
  $("inliers-text").textContent = result ? `Inliers ${number(inliers)} (0–${result.threshold} px)` : "Inliers";
  $("outliers-text").textContent = result ? `Outliers ${number(result.inlier.length - inliers)}` : "Outliers";
}

// Shows the descriptor and the number of inliers of a panel if there are two panels.
export function showLabel(panel, visible) {
  const label = panel.stage.section.querySelector(".name");
  label.hidden = !visible;
  if (!visible || !panel.settings) return;
  const count = panel.result ? `: ${number(countInliers(panel.result))} inliers` : "";
  label.textContent = `${displayName(panel.settings.descriptor)}${panel.stale ? ": matching…" : count}`;
}
