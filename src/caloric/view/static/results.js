// Requests and shows results. A result of other settings is stale: it is grayed out until the new
// one arrives, and removed if there is none.
import { $, complain, doing, element } from "./page.js";
import { inliers, number, sentence, title } from "./words.js";

// A stage and the result that it shows.
export class Shown {
  constructor(stage, source) {
    this.stage = stage;
    this.source = source;
    this.found = null;
    this.settings = null;
    this.reason = "";  // why there is no result
    this.asking = null;
  }

  get stale() { return this.asking !== null; }

  // True if the result for these settings arrived.
  async ask(settings, filter) {
    this.asking?.abort();
    const own = new AbortController();
    this.asking = own;
    this.settings = settings;
    this.stage.section.classList.add("stale");
    this.stage.section.setAttribute("aria-busy", "true");
    try {
      const found = await this.source.matches(settings, own.signal);
      if (this.asking !== own) return false;
      this.found = found;
    } catch (error) {
      if (this.asking !== own) return false;
      this.found = null;  // what was there is of other settings
      this.reason = error.message;
      complain(new Error(`Not matched: ${error.message}`));
    }
    this.asking = null;
    this.stage.section.classList.remove("stale");
    this.stage.section.removeAttribute("aria-busy");
    this.show(filter);
    return this.found !== null;
  }

  forget() {
    this.asking?.abort();
    this.asking = null;
    this.found = null;
    this.settings = null;
    this.stage.section.classList.remove("stale");
    this.stage.set(null, this.stage.shown);
  }

  show(filter) {
    this.stage.set(this.found, filter);
    this.stage.canvas.setAttribute("aria-label", this.found
      ? `Two images and their matches: ${sentence(this.found).join(", ")}` : "Two images, not matched");
  }
}

// The status line and the numbers in the legend.
export function showCounts(own) {
  const { found, settings } = own, counts = $("counts");
  counts.classList.toggle("stale", own.stale);
  counts.classList.toggle("doubt", Boolean(found) && !found.reliable && !own.stale);
  if (own.stale) {
    counts.textContent = `matching with ${title(settings.descriptor)} …`;
    doing(counts.textContent, "");  // screen readers read the status line
    return;
  }
  doing("");
  counts.replaceChildren();
  if (found) {
    const [strong, ...rest] = sentence(found);
    counts.append(element("b", { textContent: strong }), ...rest.flatMap((text) => [" ", element("span", { textContent: text })]));
  } else counts.textContent = settings ? `Not matched: ${own.reason}` : "Two images are needed: drop them, or choose files";
  const kept = found ? inliers(found) : 0;
  $("inliers-text").textContent = found ? `Inliers ${number(kept)} (0–${found.threshold} px)` : "Inliers";
  $("outliers-text").textContent = found ? `Outliers ${number(found.inlier.length - kept)}` : "Outliers";
}

// The label of a stage if there are two.
export function label(shown, visible) {
  const name = shown.stage.section.querySelector(".name");
  name.hidden = !visible;
  if (!visible || !shown.settings) return;
  const count = shown.found ? `: ${number(inliers(shown.found))} inliers` : "";
  name.textContent = `${title(shown.settings.descriptor)}${shown.stale ? ": matching …" : count}`;
}
