// Access to elements of the page, and creation of new ones.

export const $ = (id) => document.getElementById(id);

export const element = (name, properties = {}, ...children) => {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
};

// An error message that disappears after nine seconds.
let errorTimer = 0;
export function showError(error) {
  if (error.name === "AbortError") return;
  $("error").textContent = error.message;
  $("error").hidden = false;
  clearTimeout(errorTimer);
  errorTimer = setTimeout(() => { $("error").hidden = true; }, 9000);
}

// The current activity with elapsed seconds, also announced to screen readers; empty when done.
let progressTimer = 0;
export function showProgress(text, announcement = text) {
  if (announcement) $("announcement").textContent = announcement;
  clearInterval(progressTimer);
  $("progress").hidden = !text;
  $("progress-text").textContent = text;
  $("elapsed").textContent = "";
  if (!text) return;
  const start = performance.now();
  progressTimer = setInterval(() => { $("elapsed").textContent = `${Math.round((performance.now() - start) / 1000)} s`; }, 1000);
}
