// Access to elements of the page, and creation of new ones.

export const $ = (id) => document.getElementById(id);

export const element = (name, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
};

// An error message that disappears after a while.
let complaining = 0;
export function complain(error) {
  if (error.name === "AbortError") return;
  $("error").textContent = error.message;
  $("error").hidden = false;
  clearTimeout(complaining);
  complaining = setTimeout(() => { $("error").hidden = true; }, 9000);
}

// The current activity, with elapsed seconds; empty when done.
let counting = 0;
export function doing(text, aloud = text) {
  if (aloud) $("announced").textContent = aloud;
  clearInterval(counting);
  $("pill").hidden = !text;
  $("doing").textContent = text;
  $("seconds").textContent = "";
  if (!text) return;
  const start = performance.now();
  counting = setInterval(() => { $("seconds").textContent = `${Math.round((performance.now() - start) / 1000)} s`; }, 1000);
}
