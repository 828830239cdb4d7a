// Requests and shows results. After a change of settings the old result is grayed out until the new
// one arrives, and removed if that fails. If the request is cancelled, the old result is shown again.
import { Operation } from "./operations.js";
import { $, element, showError } from "./page.js";
import { countInliers, countPropagated, displayName, number, pixels, summary } from "./text.js";

// A stage and the result that it shows.
export class ResultPanel {
  constructor(stage, source) {
    this.stage = stage;
    this.source = source;
    this.result = null;
    this.settings = null;  // of the pending request, or else of the result
    this.resultSettings = null;
    this.error = "";  // why there is no result
    this.pending = null;  // the operation of the current request
  }

  get stale() { return this.pending !== null; }

  // Resolves to true when the result for these settings has arrived.
  async request(settings, filter) {
    this.pending?.abort();
    const operation = new Operation(`Matching with ${displayName(settings.descriptor)}`, this.source, () => this.revert());
    operation.announced = true;  // by the status line
    this.settings = settings;
    this.setPending(operation);
    try {
      const result = await operation.run((options) => this.source.matches(settings, options));
      if (this.pending !== operation) return false;
      this.setResult(result, settings);
    } catch (error) {
      if (this.pending !== operation) return false;
      this.setResult(null, null, `Matching failed: ${error.message}`);  // the old result is for other settings
      showError(new Error(this.error));
    }
    this.setPending(null);
    this.show(filter);
    return this.result !== null;
  }

  setPending(operation) {
    this.pending = operation;
    this.stage.section.classList.toggle("stale", this.stale);
    this.stage.section.setAttribute("aria-busy", this.stale);
  }

  setResult(result, settings, error = "") {
    this.result = result;
    this.resultSettings = settings;
    this.error = error;
  }

  // Returns to the old result after the request was cancelled.
  revert() {
    this.setPending(null);
    this.settings = this.resultSettings;
    if (!this.result) this.error = "Matching cancelled";
  }

  reset() {
    this.pending?.abort();
    this.setPending(null);
    this.setResult(null, null);
    this.settings = null;
    this.stage.set(null, this.stage.filter);
  }

  show(filter) {
    this.stage.set(this.result, filter);
    this.stage.canvas.setAttribute("aria-label", this.result
      ? `Two images and their matches: ${summary(this.result).join(", ")}` : "Two images without matches");
  }
}

function missingImages({ a, b }) {
  if (a && b) return "Not matched yet";
  return a || b ? `Drop the ${a ? "second" : "first"} image or choose a file` : "Drop two images or choose files";
}

// Updates the status line and the legend.
export function showCounts(panel) {
  const { result, settings } = panel, counts = $("counts");
  counts.classList.toggle("stale", panel.stale);
  counts.classList.toggle("unreliable", Boolean(result) && !result.reliable && !panel.stale);
  if (panel.stale) {
    counts.textContent = `Matching with ${displayName(settings.descriptor)}…`;
    return;
  }
  counts.replaceChildren();
  counts.title = result?.reason ?? "";
  if (result) {
    const [headline, ...rest] = summary(result);
    counts.append(element("b", { textContent: headline }), ...rest.flatMap((text) => [" ", element("span", { textContent: text })]));
  } else counts.textContent = panel.error || missingImages(panel.stage.images);
  const inliers = result ? countInliers(result) : 0, propagated = result ? countPropagated(result) : 0;
  $("inliers-text").textContent = result ? `Inliers ${number(inliers - propagated)} (0–${pixels(result.threshold)} px)` : "Inliers";
  $("propagated-text").textContent = `+ ${number(propagated)} propagated`;
  $("propagated-item").hidden = !propagated;
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
