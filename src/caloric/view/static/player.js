// Animates the path of an alignment, from blurred to sharp.
import { $ } from "./page.js";

const LASTS = 2400;  // milliseconds of a whole path; its steps are few where the search was near
const STAYS = 1200;  // milliseconds after the last step, if it began by itself

export const calm = () => window.matchMedia("(prefers-reduced-motion: reduce)").matches;

const between = (p, q, t) => p + t * (q - p);

// A step interpolated between two steps, with easing.
function blend(a, b, share) {
  const t = share * share * (3 - 2 * share);
  return {
    sigma: between(a.sigma, b.sigma, t), energy: t < 1 ? a.energy : b.energy,
    corners: a.corners.map(([x, y], k) => [between(x, b.corners[k][0], t), between(y, b.corners[k][1], t)]),
  };
}

export class Player {
  // told(path) receives {template, step} to draw, or null.
  constructor(told) {
    this.told = told;
    this.found = null;
    this.frame = 0;
    $("play").addEventListener("click", () => (this.frame ? this.pause() : this.play()));
    $("step").addEventListener("input", () => { this.pause(); this.show(+$("step").value); });
    $("close").addEventListener("click", () => this.close());
  }

  // Plays immediately; with reduced motion it shows the last step.
  open(found, byItself = false) {
    this.close();
    this.found = found;
    this.leaving = byItself;
    const words = found.converged ? "Locating a square of the first image in the second"
      : `Not reliable: ${found.reason}`;
    $("verdict").textContent = found.steps.length ? words : `No alignment: ${found.reason}`;
    for (const id of ["play", "step", "sigma"]) $(id).hidden = !found.steps.length;
    $("step").max = Math.max(0, found.steps.length - 1);
    $("player").hidden = false;
    if (!found.steps.length) return;
    if (calm()) this.show(found.steps.length - 1); else this.play();
  }

  play() {
    const last = this.found.steps.length - 1;
    const first = +$("step").value >= last ? 0 : +$("step").value;
    let start = null;
    $("play").textContent = "❚❚";
    $("play").setAttribute("aria-label", "Pause");
    const tick = (now) => {
      start ??= now;
      const at = Math.min(last, first + (now - start) * Math.max(1, last) / LASTS);
      this.show(at);
      if (at < last) { this.frame = requestAnimationFrame(tick); return; }
      this.pause();
      if (this.leaving) this.timer = setTimeout(() => this.close(), STAYS);
    };
    this.frame = requestAnimationFrame(tick);
  }

  pause() {
    cancelAnimationFrame(this.frame);
    clearTimeout(this.timer);
    this.frame = 0;
    $("play").textContent = "▶";
    $("play").setAttribute("aria-label", "Play");
  }

  show(at) {
    const { steps, template } = this.found, k = Math.min(steps.length - 1, Math.floor(at));
    const step = k + 1 < steps.length ? blend(steps[k], steps[k + 1], at - k) : steps[k];
    $("step").value = k;
    $("sigma").textContent = `σ ${step.sigma < 0.05 ? 0 : step.sigma.toFixed(1)} px`;
    $("step").setAttribute("aria-valuetext", `step ${k + 1} of ${steps.length}, sigma ${step.sigma.toFixed(1)} pixels`);
    this.told({ template, step });
  }

  get active() { return this.found !== null; }

  close() {
    if (!this.found) return;
    this.pause();
    $("step").value = 0;
    $("player").hidden = true;
    this.found = null;
    this.told(null);
  }
}
