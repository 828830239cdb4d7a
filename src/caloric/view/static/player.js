// Animates the path of an alignment, from blurred to sharp.
import { $ } from "./page.js";

const DURATION = 2400;  // milliseconds, however many steps there are

export const reducedMotion = () => window.matchMedia("(prefers-reduced-motion: reduce)").matches;

const interpolate = (p, q, t) => p + t * (q - p);

// A step interpolated between two steps, with easing.
function blend(a, b, fraction) {
  const t = fraction * fraction * (3 - 2 * fraction);
  return {
    sigma: interpolate(a.sigma, b.sigma, t), energy: t < 1 ? a.energy : b.energy,
    corners: a.corners.map(([x, y], k) => [interpolate(x, b.corners[k][0], t), interpolate(y, b.corners[k][1], t)]),
  };
}

export class Player {
  // draw(path) receives {template, step} to draw, or null.
  constructor(draw) {
    this.draw = draw;
    this.alignment = null;
    this.frame = 0;
    $("play").addEventListener("click", () => (this.frame ? this.pause() : this.play()));
    $("step").addEventListener("input", () => { this.pause(); this.show(+$("step").value); });
    $("close").addEventListener("click", () => this.close());
  }

  // Plays immediately; with reduced motion it shows the last step.
  open(alignment) {
    this.close();
    this.alignment = alignment;
    const text = alignment.converged ? "Locating a square of the first image in the second"
      : `Not reliable: ${alignment.reason}`;
    $("player-text").textContent = alignment.steps.length ? text : `No alignment: ${alignment.reason}`;
    for (const id of ["play", "step", "sigma"]) $(id).hidden = !alignment.steps.length;
    $("step").max = Math.max(0, alignment.steps.length - 1);
    $("player").hidden = false;
    if (!alignment.steps.length) return;
    if (reducedMotion()) this.show(alignment.steps.length - 1); else this.play();
  }

  play() {
    const last = this.alignment.steps.length - 1;
    const first = +$("step").value >= last ? 0 : +$("step").value;
    let start = null;
    $("play").textContent = "❚❚";
    $("play").setAttribute("aria-label", "Pause");
    const tick = (now) => {
      start ??= now;
      const at = Math.min(last, first + (now - start) * Math.max(1, last) / DURATION);
      this.show(at);
      if (at < last) this.frame = requestAnimationFrame(tick); else this.pause();
    };
    this.frame = requestAnimationFrame(tick);
  }

  pause() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    $("play").textContent = "▶";
    $("play").setAttribute("aria-label", "Play");
  }

  show(at) {
    const { steps, template } = this.alignment, k = Math.min(steps.length - 1, Math.floor(at));
    const step = k + 1 < steps.length ? blend(steps[k], steps[k + 1], at - k) : steps[k];
    $("step").value = k;
    $("sigma").textContent = `σ ${step.sigma < 0.05 ? 0 : step.sigma.toFixed(1)} px`;
    $("step").setAttribute("aria-valuetext", `step ${k + 1} of ${steps.length}, sigma ${step.sigma.toFixed(1)} pixels`);
    this.draw({ template, step });
  }

  get active() { return this.alignment !== null; }

  close() {
    if (!this.alignment) return;
    this.pause();
    $("step").value = 0;
    $("player").hidden = true;
    this.alignment = null;
    this.draw(null);
  }
}
